"""Functions that ask about the instance and its cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.pgwire import messages as m
from tests.unit.node.in_process import InProcess, in_process


def value(inside: InProcess, sql: str) -> object:
    ((found,),) = inside.client().rows(f"SELECT {sql}")
    return None if found is None else json.loads(found)


def test_buckets_of_a_tier(tmp_path: Path) -> None:
    with in_process(tmp_path / "i") as inside:
        replicaset = value(inside, "'\"' || uuid || '\"' FROM _pico_replicaset")
        (found,) = value(inside, "_pico_bucket('default')")  # type: ignore[misc]
        assert found == {
            "tier_name": "default",
            "bucket_id_start": 1,
            "bucket_id_end": 3000,
            "state": "active",
            "current_replicaset_uuid": replicaset,
            "target_replicaset_uuid": replicaset,
        }
        # An element is a map, and its members may be taken out of it.
        assert value(inside, "_pico_bucket('default')[1]['bucket_id_end']") == 3000
        assert value(inside, "_pico_bucket('default')[2]") is None


@pytest.mark.parametrize(
    "argument, sqlstate, message",
    [
        ("'nowhere'", "42704", "_pico_bucket: tier 'nowhere' doesn't exist"),
        ("NULL", "22023", "_pico_bucket: tier name is null"),
        ("1", "42883", "could not resolve function overload for _pico_bucket(int)"),
        ("", "42883", "could not resolve function overload for _pico_bucket()"),
    ],
)
def test_buckets_of_what_is_no_tier(tmp_path: Path, argument: str, sqlstate: str, message: str) -> None:
    with in_process(tmp_path / "i") as inside:
        answers = inside.client().ask(m.Query(f"SELECT _pico_bucket({argument})"))
        (error,) = [answer for answer in answers if isinstance(answer, m.ErrorResponse)]
        assert (error.sqlstate, error.message) == (sqlstate, message)


def test_health_of_an_instance(tmp_path: Path) -> None:
    with in_process(tmp_path / "i") as inside:
        found = value(inside, "pico_instance_health_status(pico_instance_uuid())")
        assert isinstance(found, dict)
        assert found | {"uuid": "", "version": ""} == {
            "status": "healthy",
            "issues": [],
            "name": "default_1_1",
            "uuid": "",
            "version": "",
            "raftId": 1,
            "tier": "default",
            "replicaset": "default_1",
            "currentState": "Online(1)",
            "targetState": "Online(1)",
            "reason": "join",
        }
        assert value(inside, "pico_instance_health_status('nobody')") is None
        assert value(inside, "pico_instance_health_status(NULL)") is None
