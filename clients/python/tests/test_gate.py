"""What a gate does with each decision, in threads."""

from __future__ import annotations

import json
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from callgate import Call, CallIdReused, CallRefused, Client, Gate, InvalidArgument, Outcome, Result, ToolFailed, permit
from callgate.v1.approval_service_pb2 import APPROVAL_STATE_PENDING, ListApprovalsRequest, ResolveApprovalRequest
from callgate.v1.types_pb2 import CALL_STATE_HELD

from .conftest import calls, states
from .plane import Server

if TYPE_CHECKING:
    from collections.abc import Callable


class Tool:
    """Counts its executions, and gives or raises what it is told to, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers) or ["done"]
        self.seen: list[dict[str, Any]] = []

    def __call__(self, **args: Any) -> Any:
        self.seen.append(args)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


def answer_when_asked(client: Client, session: str, *, approve: bool, reason: str = "") -> threading.Thread:
    """Somebody who answers the session's question as soon as it is there."""

    def person() -> None:
        asks = ListApprovalsRequest(session_id=session, state=APPROVAL_STATE_PENDING)
        while not (asked := client.services.approvals.ListApprovals(asks).approvals):
            time.sleep(0.05)
        request = ResolveApprovalRequest(approval_id=asked[0].approval_id, approve=approve, reason=reason)
        client.services.approvals.ResolveApproval(request, metadata=(("callgate-by", "ann"),))

    thread = threading.Thread(target=person)
    thread.start()
    return thread


def test_what_may_run_runs_once_and_is_recorded(client: Client, gate: Gate, session: str) -> None:
    tool = Tool({"order": 42})
    outcome = gate.run("lookup", {"order_id": 42}, tool)
    assert tool.seen == [{"order_id": 42}]
    assert outcome.unwrap() == {"order": 42}
    assert (outcome.decision, outcome.ran, outcome.is_error, outcome.recorded) == ("ALLOW", True, False, True)
    assert json.loads(outcome.text)["results"] == {"order": 42}
    assert states(client, session) == ["SUCCEEDED"]


def test_a_duplicate_gets_the_previous_result_and_is_not_executed(gate: Gate, session: str) -> None:
    tool = Tool({"id": "p-7"})
    gate.run("pay", {"for": session}, tool)
    again = gate.run("pay", {"for": session}, tool)
    assert len(tool.seen) == 1
    assert (again.decision, again.ran, again.reason) == ("REUSE", False, "duplicate_call_blocked")
    assert again.unwrap() == {"id": "p-7"}


def test_what_is_forbidden_is_told_and_raises_when_unwrapped(gate: Gate) -> None:
    tool = Tool()
    outcome = gate.run("drop_table", {"name": "orders"}, tool)
    assert tool.seen == []
    assert (outcome.decision, outcome.is_error, outcome.reason) == ("DENY", True, "tool_denied")
    with pytest.raises(CallRefused, match="drop_table was not run: the policy does not allow it") as refused:
        outcome.unwrap()
    assert refused.value.outcome is outcome


def test_what_the_model_wrote_wrong_is_told_by_the_plane(gate: Gate) -> None:
    tool = Tool()
    outcome = gate.run("lookup", '{"order_id": ', tool)
    assert tool.seen == []
    assert outcome.reason == "validation_error"
    assert "cut off after 13 bytes" in outcome.text


def test_a_call_in_flight_is_waited_for(gate: Gate, session: str) -> None:
    begun, end = threading.Event(), threading.Event()

    def slow(**_: str) -> str:
        begun.set()
        end.wait(20)
        return "slow"

    first = threading.Thread(target=gate.run, args=("pay", {"for": session}, slow))
    first.start()
    begun.wait(20)
    threading.Timer(0.5, end.set).start()
    tool = Tool()
    second = gate.run("pay", {"for": session}, tool)
    first.join()
    assert (second.decision, second.unwrap(), tool.seen) == ("REUSE", "slow", [])


def test_a_wait_beyond_patience_is_the_outcome(gate: Gate, session: str) -> None:
    begun, end = threading.Event(), threading.Event()

    def slow(**_: str) -> None:
        begun.set()
        end.wait(20)

    first = threading.Thread(target=gate.run, args=("pay", {"for": session}, slow))
    first.start()
    begun.wait(20)
    second = gate.run("pay", {"for": session}, Tool(), patience_s=0)
    end.set()
    first.join()
    assert (second.decision, second.reason, second.ran) == ("WAIT", "call_in_flight", False)


def test_a_yes_is_waited_for(client: Client, gate: Gate, session: str) -> None:
    person = answer_when_asked(client, session, approve=True)
    tool = Tool()
    outcome = gate.run("ask_ann", {"n": 1}, tool)
    person.join()
    assert (outcome.decision, tool.seen) == ("ALLOW", [{"n": 1}])


def test_a_no_is_told_with_its_reason(client: Client, gate: Gate, session: str) -> None:
    person = answer_when_asked(client, session, approve=False, reason="not on a Sunday")
    tool = Tool()
    outcome = gate.run("ask_ann", {}, tool)
    person.join()
    assert (outcome.decision, outcome.reason, tool.seen) == ("DENY", "approval_denied", [])
    assert "not on a Sunday" in outcome.text


def test_nobody_is_waited_for_where_the_caller_does_not_want_it(client: Client, gate: Gate, session: str) -> None:
    outcome = gate.run("ask_ann", {}, Tool(), approval_wait_s=0)
    assert outcome.decision == "ASK"
    assert outcome.approval_id
    [held] = calls(client, session)
    assert held.state == CALL_STATE_HELD


def test_a_retry_is_made_as_advised_under_the_same_permit_key(client: Client, gate: Gate, session: str) -> None:
    keys = []
    tool = Tool(ToolFailed("overloaded", http_status=503, retry_after_s=0.1), "fine")

    def execute() -> Any:
        given = permit()
        assert given is not None
        keys.append((given.idempotency_key, given.attempt))
        return tool()

    outcome = gate.run("fetch", "", execute)
    assert (outcome.unwrap(), outcome.attempts) == ("fine", 2)
    assert [attempt for _, attempt in keys] == [1, 2]
    assert keys[0][0] == keys[1][0] != ""
    assert permit() is None
    assert states(client, session) == ["FAILED", "SUCCEEDED"]


def test_a_retry_beyond_patience_is_left_to_the_model(gate: Gate) -> None:
    tool = Tool(ToolFailed("overloaded", http_status=503, retry_after_s=30))
    outcome = gate.run("fetch", "", tool, patience_s=1)
    assert (len(tool.seen), outcome.is_error) == (1, True)
    assert json.loads(outcome.text)["retryable"] is True
    with pytest.raises(ToolFailed, match="overloaded"):
        outcome.unwrap()


OPEN = [
    TimeoutError("no answer within 5 s"),
    ConnectionResetError(104, "Connection reset by peer"),
    *(ToolFailed("it broke", http_status=status) for status in (500, 502, 503, 504)),
]


@pytest.mark.parametrize(
    "failure", OPEN, ids=lambda failure: getattr(failure, "http_status", None) or type(failure).__name__
)
@pytest.mark.parametrize("tool_name", ["refund", "payout"])
def test_what_may_have_taken_effect_is_executed_once(
    gate: Gate, session: str, tool_name: str, failure: Exception
) -> None:
    tool = Tool(failure, "fine")
    outcome = gate.run(tool_name, {"order": session}, tool)
    assert (len(tool.seen), outcome.is_error) == (1, True)
    assert "may have taken effect" in outcome.text


def test_a_timeout_is_retried_where_the_tool_has_received_the_key(client: Client, gate: Gate, session: str) -> None:
    tool = Tool(TimeoutError("no answer"), "paid")

    def transfer(order: str) -> Any:
        given = permit()
        return tool(order=order, key=given and given.idempotency_key)

    outcome = gate.run("transfer", {"order": session}, transfer)
    assert (outcome.unwrap(), outcome.attempts) == ("paid", 2)
    assert tool.seen[0]["key"] == tool.seen[1]["key"]
    tool = Tool(TimeoutError("no answer"), "paid")
    outcome = gate.run("reimburse", {"order": session}, tool)
    assert (len(tool.seen), outcome.is_error) == (1, True)
    assert json.loads(outcome.text)["status"] == "outcome_unknown"
    again = gate.run("reimburse", {"order": session}, tool)
    assert (again.decision, again.reason, len(tool.seen)) == ("DENY", "outcome_unknown", 1)


def test_a_timeout_is_retried_where_the_key_was_an_argument(session: str) -> None:
    policy = """policy_engine:
      idempotency: {inject_as: argument, argument: request_key}
      tool_schemas: {transfer: {effect: write, key_honored: true}, deaf: {effect: write, key_honored: true}}"""
    tool = Tool(TimeoutError("no answer"), "paid")
    runs = []

    def deaf(cents: int) -> None:
        runs.append(cents)
        raise TimeoutError("no answer")

    with Server(policy) as server, Client(server.address) as client:
        gate = client.gate(session)
        assert gate.run("transfer", {"cents": 5}, tool).attempts == 2
        assert gate.run("deaf", {"cents": 6}, deaf).attempts == 1
    assert (len(tool.seen), runs) == (2, [6])


def test_what_the_program_declares_to_read_is_retried(gate: Gate) -> None:
    tool = Tool(TimeoutError("no answer"), "fine")
    outcome = gate.run("find", {"order": 7}, tool, read_only=True)
    assert (outcome.unwrap(), outcome.attempts) == ("fine", 2)


def test_a_look_at_what_its_witness_says_is_the_same_is_answered(gate: Gate) -> None:
    states = {"/a": "v1"}
    tool = Tool(*range(9))

    def page(execute: Callable[..., Any] = tool, witness: Callable[..., Any] = states.get) -> tuple[Any, Any]:
        outcome = gate.run("page", {"path": "/a"}, execute, witness=lambda path: witness(path))
        return outcome.decision, outcome.unwrap()

    def changing(path: str) -> Any:
        states[path] = "v4"
        return tool(path=path)

    assert [page(), page()] == [("ALLOW", 0), ("REUSE", 0)]
    states["/a"] = "v2"
    assert [page(), page()] == [("ALLOW", 1), ("REUSE", 1)], "another state"
    states["/a"] = "v3"
    assert [page(changing), page(), page()] == [("ALLOW", 2), ("ALLOW", 3), ("REUSE", 3)], "changed while it was read"
    states["/a"] = "x" * 300
    assert [page(), page()] == [("ALLOW", 4), ("REUSE", 4)], "a long state"
    assert [page(witness=lambda _: None), page(witness=lambda _: None)] == [("ALLOW", 5), ("ALLOW", 6)]
    assert page(witness=lambda _: 1 / 0) == ("ALLOW", 7), "a witness that fails says nothing"
    with pytest.raises(TypeError, match="witness: str is no function"):
        gate.run("page", {}, tool, witness="v1")  # type: ignore[arg-type]


def test_what_no_retry_mends_is_not_retried(gate: Gate) -> None:
    tool = Tool(ToolFailed("no such order", http_status=404))
    outcome = gate.run("fetch", "", tool)
    assert (len(tool.seen), outcome.attempts) == (1, 1)
    assert json.loads(outcome.text)["error_type"] == "not_found"


def test_the_key_is_an_argument_where_the_policy_says_so(session: str) -> None:
    policy = "policy_engine: {idempotency: {inject_as: argument, argument: request_key}}"
    tool = Tool()
    with Server(policy) as server, Client(server.address) as client:
        gate = client.gate(session)
        gate.run("pay", {"cents": 5, "request_key": "the model's own"}, tool)
        assert gate.run("pay", {"cents": 6}, lambda cents: cents).unwrap() == 6
    [args] = tool.seen
    assert args["cents"] == 5
    assert re.fullmatch("[0-9a-f]{32}", args["request_key"])


def test_mended_arguments_are_executed(gate: Gate) -> None:
    tool = Tool()
    gate.run("typed", '{"n": "7"}', tool)
    assert tool.seen[0]["n"] == 7


def test_hints_are_told_once_and_results_stay_byte_for_byte(gate: Gate) -> None:
    answers = [f'{{"id":{n},  "price": 1.10}}' for n in range(3)]
    outcome = Outcome("", is_error=False, decision=None)
    for answer in answers:
        outcome = gate.run("make", {"title": "Q3 report"}, Tool(answer))
    hint = outcome.verdict.next_context_hint if outcome.verdict else ""
    assert "2 times" in hint
    assert answers[-1] in outcome.text
    assert json.loads(outcome.text)["warning"] == hint


def test_what_a_result_says_of_itself_is_told(gate: Gate) -> None:
    outcome = gate.run("search", {}, Tool(Result([1, 2], is_complete=True, total_matches=2)))
    told = json.loads(outcome.text)
    assert (outcome.value, told["is_complete"], told["total_matches"]) == ([1, 2], True, 2)


def test_a_batch_is_judged_together_and_executed_at_once(client: Client, gate: Gate, session: str) -> None:
    together = threading.Barrier(3, timeout=30)

    def meet(n: int) -> int:
        together.wait()
        return n

    made = [Call("meet", {"n": n}, meet, call_id=f"c{n}") for n in range(3)]
    refused = Tool()
    first, second, third, denied, twin = gate.batch(
        [*made, Call("drop_table", {}, refused), Call("pay", {"for": session}, Tool("once"))]
    )
    assert [outcome.unwrap() for outcome in (first, second, third)] == [0, 1, 2]
    assert (denied.decision, refused.seen, twin.unwrap()) == ("DENY", [], "once")
    assert sorted(states(client, session)) == ["REFUSED", *["SUCCEEDED"] * 4]


def test_of_twins_in_a_batch_one_runs(gate: Gate, session: str) -> None:
    tool = Tool("once")
    outcomes = gate.batch([Call("pay", {"for": session}, tool), Call("pay", {"for": session}, tool)])
    assert len(tool.seen) == 1
    assert [outcome.unwrap() for outcome in outcomes] == ["once", "once"]
    assert sorted(str(outcome.decision) for outcome in outcomes) == ["ALLOW", "REUSE"]


def test_an_empty_batch_is_nothing(gate: Gate) -> None:
    assert gate.batch([]) == []


def test_ids_of_a_turn_do_not_meet_those_of_another(client: Client, gate: Gate, session: str) -> None:
    for turn in ("1", "2"):
        gate.run("look", {"turn": turn}, Tool(), call_id="call_0", turn=turn)
    assert {call.call_id for call in calls(client, session)} == {"1/call_0", "2/call_0"}
    long = gate.run("look", {}, Tool(), call_id="x" * 300)
    assert long.call_id.startswith("sha256:")


def test_an_id_for_two_calls_is_the_programs_fault(gate: Gate) -> None:
    gate.run("look", {"n": 1}, Tool(), call_id="c")
    tool = Tool()
    with pytest.raises(CallIdReused, match="CALL_ID_REUSED"):
        gate.run("look", {"n": 2}, tool, call_id="c")
    assert tool.seen == []


def test_an_id_that_runs_here_is_not_run_a_second_time(gate: Gate) -> None:
    tool = Tool()

    def outer() -> None:
        with pytest.raises(CallIdReused, match="is running in this process"):
            gate.run("look", "{}", tool, call_id="same")

    gate.run("look", "{}", outer, call_id="same")
    assert tool.seen == []


def test_a_malformed_field_is_named(client: Client) -> None:
    tool = Tool()
    with pytest.raises(InvalidArgument) as wrong:
        client.gate("").run("look", {}, tool)
    assert wrong.value.field == "caller.session_id"
    assert tool.seen == []


async def _coroutine() -> None: ...


def test_a_coroutine_is_no_value(gate: Gate) -> None:
    outcome = gate.run("look", {}, lambda: _coroutine())
    assert isinstance(outcome.error, TypeError)
    assert "AsyncGate" in str(outcome.error)
    assert "a bug in the tool" in outcome.text


@pytest.mark.parametrize(
    ("run", "error", "names"),
    [
        (lambda gate: gate.run("t", {1: object}, Tool(), patience_s=-1), ValueError, "patience_s"),
        (lambda gate: gate.run("t", {"n": float("nan")}, Tool()), ValueError, "args"),
        (lambda gate: gate.run("t", 7, Tool()), TypeError, "args: int"),
        (lambda gate: gate.run("t", [1], Tool()), TypeError, "args: list"),
        (lambda gate: gate.run("t", {}, Tool()()), TypeError, "execute: str is no function"),
        (lambda gate: gate.run("t", {}, Tool(), call_id=7), TypeError, "call_id: 7"),
        (lambda gate: gate.run(None, {}, Tool()), TypeError, "tool: None"),
        (lambda gate: gate.run("t", {}, _coroutine), TypeError, "AsyncGate"),
        (lambda gate: gate.run("t", {}, Tool(), timeout_s=1), TypeError, "timeout_s"),
        (lambda gate: gate.replace(fail_open="pay"), TypeError, "fail_open"),
        (lambda gate: gate.replace(approval_wait_s=-1), ValueError, "approval_wait_s"),
        (lambda gate: gate.replace(sesion="x"), TypeError, "sesion"),
    ],
)
def test_bad_input_is_named(gate: Gate, run: Callable[[Gate], Any], error: type[Exception], names: str) -> None:
    with pytest.raises(error, match=names):
        run(gate)
