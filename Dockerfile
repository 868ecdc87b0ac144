# tfdist with TensorFlow, as the pods of `tfdist manifest` expect it: docs/kubernetes.md.
#   docker build --tag REGISTRY/tfdist:1 .
#   docker build --target cuda --tag REGISTRY/tfdist:1-cuda .
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS packages
ENV PATH=/opt/tfdist/bin:$PATH
WORKDIR /install
COPY requirements/build.txt requirements/run.txt ./
RUN python3 -m venv /opt/tfdist \
  && pip install --no-cache-dir --no-deps --require-hashes -r build.txt \
  && pip install --no-cache-dir --no-deps --require-hashes --no-build-isolation -r run.txt

# A folder with tfdist alone, so that another version of it changes no layer but the last.
FROM packages AS tfdist
COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation --prefix /package .

FROM ${BASE} AS image
LABEL org.opencontainers.image.source=https://github.com/tfdist/tfdist \
  org.opencontainers.image.licenses="Apache-2.0 AND CC-BY-4.0"
ENV PATH=/opt/tfdist/bin:$PATH PYTHONUNBUFFERED=1
RUN groupadd --gid 1000 tfdist \
  && useradd --uid 1000 --gid 1000 --create-home tfdist \
  && install --directory --owner=1000 --group=1000 /work
WORKDIR /work
ENTRYPOINT ["tfdist"]
CMD ["--help"]
COPY --from=packages /opt/tfdist /opt/tfdist

FROM image AS cuda
COPY requirements/cuda.txt /tmp/
RUN pip install --no-cache-dir --no-deps --require-hashes -r /tmp/cuda.txt && rm /tmp/cuda.txt
COPY --from=tfdist /package /opt/tfdist
USER 1000:1000

FROM image AS cpu
COPY --from=tfdist /package /opt/tfdist
USER 1000:1000
