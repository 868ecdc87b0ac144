import socket

from tfdist.launch.agent_program.ports import listening_ports, reserve


def test_listening_ports_include_servers_and_no_reserved_sockets():
    with socket.create_server(("127.0.0.1", 0)) as server, reserve(0) as reserved:
        ports = listening_ports()
        assert server.getsockname()[1] in ports
        assert reserved.getsockname()[1] not in ports
