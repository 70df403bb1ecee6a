"""haproxy in front of the replicas: it passes TLS on, and leaves out whoever is not ready."""

import shutil

import scene as stage

CONFIG = """\
global
  maxconn 4000
defaults
  mode tcp
  timeout connect 2s
  timeout client 1m
  timeout server 1m
  option redispatch
frontend agents
  bind 127.0.0.1:{port}
  default_backend replicas
backend replicas
  balance leastconn
  option httpchk GET /readyz
  default-server check check-ssl verify required ca-file {ca} inter 2s fall 2 rise 1 on-marked-down shutdown-sessions
{servers}
"""


class Balancer:
    """What agents and operators connect to; for `Client` it is like a replica."""

    def __init__(self, scene):
        if not shutil.which("haproxy"):
            stage.skip("haproxy is missing (apt-get install haproxy)")
        self.scene, self.port, self.context = scene, stage.free_port(), scene.replicas[0].context
        servers = "\n".join(f"  server {one.name} {one.address}" for one in scene.replicas)
        file = scene.folder / "haproxy.cfg"
        file.write_text(CONFIG.format(port=self.port, servers=servers, ca=scene.folder / "server.pem"))
        scene.start("haproxy", ["haproxy", "-db", "-f", file])
        stage.until("haproxy listens", lambda: stage.listens(self.port))
