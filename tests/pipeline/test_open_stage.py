"""What a leader's machine tells others of a stage: plain values within limits, of which nothing is executed."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.shared.machines import INVITATION, Invitation, machine_counts, one_line, own_endpoint, use_interface_to
from pipeline.shared.open_stage import MOST_BYTES, OpenStage, differences

VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
NAMED = st.dictionaries(st.text(), VALUES)
STAGES = st.builds(
    OpenStage, module=st.sampled_from(["pipeline.train", "pipeline.back_translate"]), options=st.lists(st.text()),
    params=NAMED, environment=st.fixed_dictionaries({}, optional={"SHARDING": st.text()}), run_id=st.text(),
    least=st.integers(1), most=st.integers(1), facts=st.dictionaries(st.text(), NAMED),
)  # fmt: skip
STAGE = OpenStage("pipeline.train", [], {}, {}, "x", 1, 2, {})


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
    [{"module": "os"}, {"module": "pipeline.record"}, {"options": [1]}, {"environment": {"LD_PRELOAD": "x"}},
     {"environment": {"SHARDING": 1}}, {"least": "1"}, {"facts": {"data": 1}}, {"params": []}, {"more": 1}],
)  # fmt: skip
def test_other_modules_variables_and_types_are_refused(change):
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
    assert own_endpoint("leader") == ("leader", 29400)
    assert own_endpoint("10.0.0.1:5000") == ("10.0.0.1", 5000)
    with pytest.raises(ValueError, match="port"):
        own_endpoint("leader:x")


def test_the_network_of_the_leader_is_used_unless_another_is_chosen(monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    use_interface_to("127.0.0.1")
    assert os.environ["GLOO_SOCKET_IFNAME"].startswith("lo")
    assert os.environ["NCCL_SOCKET_IFNAME"] == "eth7"


@given(st.text())
def test_a_notice_is_one_line(text):
    assert one_line(text).isprintable()
