"""What a leader's machine tells others of a stage: plain values within limits, of which nothing is executed."""

from __future__ import annotations

import json
import os
import socket

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.tiny import ROOT
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from pipeline.identity import code_key
from pipeline.stage import require
from pipeline.training import open_stage
from pipeline.training.machines import (
    INVITATION,
    Invitation,
    machine_counts,
    one_line,
    own_endpoint,
    shown,
    use_interface_to,
)
from pipeline.training.open_stage import MOST_BYTES, OpenStage, differences, facts
from pipeline.training.taking_part import explained
from pipeline.versions import installed
from transformer.files import sha256

VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
NAMED = st.dictionaries(st.text(), VALUES)
STAGES = st.builds(
    OpenStage,
    module=st.sampled_from(["pipeline.train", "pipeline.back_translate"]),
    options=st.lists(st.text()),
    params=NAMED,
    run_id=st.text(),
    least=st.integers(1),
    most=st.integers(1),
    facts=st.dictionaries(st.text(), NAMED),
)
STAGE = OpenStage("pipeline.train", [], {}, "x", 1, 2, {})


def test_a_machine_without_data_says_its_name_and_how_it_gets_them(tmp_path):
    host = socket.gethostname()
    with pytest.raises(ValueError, match="is missing") as error:
        require(tmp_path / "ids")
    assert explained(str(error.value)) == (
        f"{host}: {tmp_path}/ids is missing. On this machine, run `dvc pull` or `dvc repro back_translate` "
        "(docs/cluster.md says when which)."
    )
    differs = f"{host} cannot take part. It differs from the leader's machine in: data ids."
    assert explained(differs) == differs


@given(STAGES)
def test_a_stage_goes_through_json_unchanged(stage):
    assert OpenStage.from_json(stage.to_json().encode()) == stage


@given(STAGES)
def test_an_invitation_goes_through_its_file_unchanged(tmp_path_factory, stage):
    path = tmp_path_factory.mktemp(INVITATION) / "invitation.json"
    invitation = Invitation("10.0.0.1", 29400, 7, stage)
    invitation.save(path)
    assert Invitation.load(path) == invitation


@pytest.mark.parametrize(
    "change",
    [
        {"module": "os"},
        {"module": "pipeline.record"},
        {"options": [1]},
        {"environment": {"LD_PRELOAD": "x"}},
        {"least": "1"},
        {"facts": {"data": 1}},
        {"params": []},
        {"more": 1},
    ],
)
def test_other_modules_keys_and_types_are_refused(change):
    with pytest.raises(ValueError, match="no description of a stage"):
        OpenStage.from_json(json.dumps({**vars(STAGE), **change}).encode())


@given(st.binary())
@example(b"[" * 100_000)
def test_any_other_bytes_are_refused(data):
    with pytest.raises(ValueError, match="no description of a stage"):
        OpenStage.from_json(data)


def test_a_description_that_is_too_large_is_refused():
    with pytest.raises(ValueError, match="too many"):
        OpenStage.from_json(b" " * (MOST_BYTES + 1))


def test_what_must_be_equal_is_knobs_data_code_versions_and_kind_of_device(tmp_path, monkeypatch):
    monkeypatch.setattr(open_stage, "running_stage", lambda: "train")
    file = tmp_path / "vocab.txt"
    file.write_text("a")
    identity = {"knobs": {"precision": "bfloat16"}, "data": {"ids": "b"}, "versions": {"python": "3"}}
    here = facts(identity, [file], on_gpu=False)
    code = ROOT / "transformer/training/batches.py"
    assert here["knobs"] == identity["knobs"]
    assert here["data"] == {"ids": "b", str(file): sha256(file)}
    assert here["code"]["transformer/training/batches.py"] == code_key(code.read_text())
    assert here["versions"].items() >= {"python": "3", "torch": installed("torch")}.items()
    assert here["devices"]["kind"] == "CPU"
    monkeypatch.setattr(open_stage, "multiplies_bfloat16", lambda device: not here["devices"]["bfloat16"])
    assert differences(here, facts(identity, [file], on_gpu=False)).startswith("devices bfloat16 (")


@given(st.dictionaries(st.text(), NAMED))
def test_equal_machines_do_not_differ(facts):
    assert differences(facts, facts) == ""


def test_what_differs_is_named_with_values_but_without_hashes():
    here = {"data": {"ids": "a", "vocabulary": "b"}, "versions": {"torch": "2.1"}, "code": {"x.py": "c"}}
    there = {"data": {"ids": "d", "vocabulary": "b"}, "versions": {"torch": "2.2"}, "code": {"x.py": "c", "y.py": "e"}}
    assert differences(here, there) == "code y.py; data ids; versions torch (2.1 here, 2.2 there)"


@pytest.mark.parametrize(("nodes", "counts"), [("2", (2, 2)), ("1:4", (1, 4)), ("1", (1, 1)), ("3:3", (3, 3))])
def test_nodes_is_read_as_torchrun_reads_it(nodes, counts):
    assert machine_counts(nodes) == counts


@pytest.mark.parametrize("nodes", ["0", "two", "2:1", "1:", ":2", "-1", "1:2:3", "²", "0:2"])
def test_nodes_that_are_no_numbers_of_machines_are_refused(nodes):
    with pytest.raises(ValueError, match=r"NODES=.* Set NODES to 2"):
        machine_counts(nodes)


def test_an_address_has_torchruns_port_unless_another_is_given():
    assert own_endpoint("localhost") == ("localhost", 29400)
    assert own_endpoint("127.0.0.1:5000") == ("127.0.0.1", 5000)
    for port in ("x", "0", "70000"):
        with pytest.raises(ValueError, match="port"):
            own_endpoint(f"localhost:{port}")


@pytest.mark.parametrize("address", ["192.0.2.7", "no-such-host.invalid"])  # RFC 5737, RFC 6761: of no machine
def test_an_address_of_another_machine_is_refused_as_that_of_the_leader(address):
    with pytest.raises(ValueError, match=f"RENDEZVOUS: {address} is not an address of this machine"):
        own_endpoint(f"{address}:29400")


def test_an_ipv6_address_is_shown_as_one_can_type_it():
    assert parse_rendezvous_endpoint(shown("::1", 5000), 0) == ("::1", 5000)
    assert shown("10.0.0.1", 5000) == "10.0.0.1:5000"


def test_the_network_of_the_leader_is_used_unless_another_is_chosen(monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    use_interface_to("127.0.0.1")
    assert os.environ["GLOO_SOCKET_IFNAME"].startswith("lo")
    assert os.environ["NCCL_SOCKET_IFNAME"] == "eth7"


@given(st.text())
def test_a_notice_is_one_line(text):
    assert one_line(text).isprintable()
