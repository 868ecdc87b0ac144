from tfdist.launch.schedulers import slurm, table


def test_the_variables_of_a_job_name_its_scheduler():
    assert table.current({"SLURM_JOB_ID": "7"}) is slurm
    assert table.current({"SLURM_JOB_NODELIST": "n1", "PATH": "/bin"}) is None
    assert table.kill_wait_s({}) == 0.0


def test_the_transport_of_a_scheduler_is_its_own():
    assert table.with_transport("srun") is slurm
    assert table.with_transport("ssh") is None
    assert len({system.TRANSPORT for system in table.BATCH_SYSTEMS}) == len(table.BATCH_SYSTEMS)
