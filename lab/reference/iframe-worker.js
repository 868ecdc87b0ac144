// Browsers start no worker for a page that was opened as a file. Search needs one: here its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.loaded = new Promise((loaded) => {
        frame.addEventListener("load", () => {
          const inside = frame.contentWindow;
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inside.document.createElement("script");
          script.src = url;
          script.addEventListener("load", () => loaded(inside));
          inside.document.body.append(script);
        }, { once: true });
      });
      document.documentElement.append(frame);
    }

    async postMessage(data) {
      const inside = await this.loaded;
      inside.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
