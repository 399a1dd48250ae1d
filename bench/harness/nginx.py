"""nginx as the benchmarks configure it: a proxy with keep-alive to the backend, with caps or without."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Zone:
    """One `limit_req` (a rate, with its burst) or `limit_conn` (slots), each for every value of a variable."""

    name: str
    variable: str
    rate: str | None = None
    burst: int = 0
    slots: int | None = None

    def declared(self) -> str:
        kind, end = ("limit_req_zone", f" rate={self.rate}") if self.rate else ("limit_conn_zone", "")
        return f"{kind} {self.variable} zone={self.name}:10m{end};"

    def applied(self) -> str:
        if self.rate:
            return f"limit_req zone={self.name}" + (f" burst={self.burst} nodelay;" if self.burst else ";")
        return f"limit_conn {self.name} {self.slots};"


def binary() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def write_config(
    folder: Path,
    port: int,
    backend: int | None,
    zones: list[Zone],
    workers: int = 1,
    maps: str = "",
    buffering: bool = True,
) -> Path:
    """Writes the config into `folder`; without a backend every request is answered with a constant."""
    temporary = "\n".join(
        f"  {kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.geteuid() == 0 else ""
    limits = (
        "limit_req_status 429; limit_conn_status 429;\n"
        # At the default level each refusal is a line in the log, which then costs more than the refusal.
        "      limit_req_log_level info; limit_conn_log_level info;\n      "
        if zones
        else ""
    )
    proxied = (
        f"""proxy_pass http://backend;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering {"on" if buffering else "off"};"""
        if backend
        else """default_type application/json;
      return 200 '{"status":"ok"}';"""
    )
    upstream = (
        f"upstream backend {{ server 127.0.0.1:{backend}; keepalive 256; keepalive_requests 1000000000; }}" if backend else ""
    )
    path = folder / "nginx.conf"
    path.write_text(
        f"""{user}daemon off;
worker_processes {workers};
pid {folder}/pid;
error_log {folder}/error.log warn;
events {{ worker_connections 4096; }}
http {{
  access_log off;
{temporary}
  keepalive_requests 1000000000;
  {maps}
  {" ".join(zone.declared() for zone in zones)}
  {upstream}
  server {{
    listen 127.0.0.1:{port}{" reuseport" if workers > 1 else ""};
    location / {{
      {limits}{" ".join(zone.applied() for zone in zones)}
      {proxied}
    }}
  }}
}}
"""
    )
    return path


def command(program: str, config: Path, *more: str) -> list[str]:
    return [program, "-p", str(config.parent), "-c", str(config), "-e", str(config.parent / "error.log"), *more]
