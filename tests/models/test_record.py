import json
from dataclasses import asdict

from tfdist.launch.typed_json import from_json
from tfdist.models.record import Evaluation, GpuReading, RankRecord, Record, RecordStatus, Window, WindowUsage


def test_readings_of_gpus_survive_json():
    gpus = (GpuReading(3, 1 << 30, 0.9, 250.0, 120.0, 1410, "power cap"), GpuReading(4, 0, 0.0, 50.0, None, 210, ""))
    window = Window(5, 320, 0.5, 1.0, WindowUsage(0.1, 0.2, 0.0, 5, gpus))
    rank = RankRecord("worker-0", "h", 2, (), (window,), {}, 0, 0, gpu_peak_bytes=(7, 8))
    assert from_json(json.loads(json.dumps(asdict(rank))), RankRecord) == rank


def test_evaluations_survive_json_and_older_records_have_none():
    record = Record("a", 1, {}, RecordStatus.OK, "", 0, evaluations=(Evaluation(50, 0.5), Evaluation(100, 0.75)))
    data = json.loads(json.dumps(record.to_json()))
    assert Record.from_json(data) == record
    del data["evaluations"]
    assert Record.from_json(data).evaluations == ()
