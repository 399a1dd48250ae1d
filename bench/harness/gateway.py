"""This repository's gateway as the benchmarks configure it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from . import Fault

MODEL = "gpt-4o-mini"
OWNER = "org:acme/team:ml/user:dev1"
PATH = "/v1/chat/completions"
BODY = json.dumps(
    {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Say in one sentence how the river turns the mill."}],
        "max_tokens": 16,
    }
)
ADMIN_TOKEN = "root-token-for-this-run"
TENANTS = [{"org": "acme", "teams": ["ml", "search"], "users": {"ml": ["dev1", "dev2"]}}]

# Four levels, eight caps, none of which ever refuses.
MANY = 1_000_000_000
CAPS = [
    {"id": "user_rpm", "attach": {"level": "user"}, "type": "rpm", "amount": MANY, "period": "1m"},
    {"id": "team_rpm", "attach": {"level": "team"}, "type": "rpm", "amount": MANY, "period": "1m"},
    {"id": "org_rpm", "attach": {"level": "org"}, "type": "rpm", "amount": MANY, "period": "1m"},
    {"id": "user_slots", "attach": {"level": "user"}, "type": "concurrency", "amount": 100_000},
    {"id": "all_slots", "attach": {"node": "__global"}, "type": "concurrency", "amount": 1_000_000},
    {"id": "team_tpm", "attach": {"level": "team"}, "type": "tpm", "amount": MANY, "period": "1m"},
    {"id": "org_tokens", "attach": {"level": "org"}, "type": "quota_tokens", "amount": 1000 * MANY, "period": "month"},
    {"id": "team_budget", "attach": {"level": "team"}, "type": "budget_usd", "amount_usd": MANY, "period": "day"},
]


def document(
    home: Path,
    port: int,
    admin: int,
    backend: int,
    limits: list[dict] | None,
    workers: int = 1,
    tenants: list[dict] | None = None,
) -> dict:
    """A config with one backend behind every model; `limits=None` switches governance off and asks for no key."""
    return {
        "listen": f"127.0.0.1:{port}",
        "admin": {"listen": f"127.0.0.1:{admin}", "token_env": "TT_ADMIN_TOKEN"},
        "workers": workers,
        "data_dir": str(home / "data"),
        "require_key": "off" if limits is None else "on",
        "providers": [
            {"id": "local", "api": "openai", "base_urls": [f"http://127.0.0.1:{backend}"], "api_key_env": "LOCAL_KEY"}
        ],
        "routes": [{"model": "*", "provider": "local"}],
        "prices": {"models": {MODEL: {"input": 0.15, "cached_input": 0.075, "output": 0.60}}},
        "governance": {
            "enabled": limits is not None,
            "timezone": "UTC",
            "tenants": tenants or TENANTS,
            "limits": limits or [],
        },
    }


def environment() -> dict:
    return {**os.environ, "LOCAL_KEY": "sk-backend-0123456789", "TT_ADMIN_TOKEN": ADMIN_TOKEN}


def write_config(home: Path, config: dict) -> Path:
    path = home / "config.yaml"
    path.write_text(json.dumps(config, indent=1))  # JSON is YAML
    return path


def mint(binary: str, config: Path, owner: str = OWNER) -> str:
    """A new key of `owner`."""
    argv = [binary, "keys", "mint", "--owner", owner, "--json", "--config", str(config)]
    minted = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=120, cwd=config.parent)
    if minted.returncode != 0:
        raise Fault(f"keys mint ended with {minted.returncode}: {minted.stderr.strip() or minted.stdout.strip()}")
    return json.loads(minted.stdout)["key"]
