"""The middleware in LangChain's own agent, with a scripted model and the real plane."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from callgate import CallgateError, Client, Unauthenticated
from callgate.langchain import CallgateMiddleware
from callgate.v1.approval_service_pb2 import APPROVAL_STATE_APPROVED, APPROVAL_STATE_PENDING
from callgate.v1.gate_service_pb2 import DescribeToolsRequest

from ..conftest import calls
from ..plane import Server, binary
from ..test_async import eventually
from .conftest import POLICY, approve, person, questions
from .story import Turn, World, check

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.messages import BaseMessage


HAS_ASYNC_INTERRUPTS = sys.version_info >= (3, 11)


class Scripted(GenericFakeChatModel):
    """Says what it is told to, and remembers which tools it was shown."""

    shown: list[Any] = []  # noqa: RUF012 (pydantic copies it)

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        self.shown.append(tools)
        return self


def model(turns: list[Turn]) -> Scripted:
    """Ids begin anew with each turn, as those of some servers do."""
    return Scripted(messages=iter([_message(turn) for turn in turns]), shown=[])


def _message(turn: Turn) -> AIMessage:
    if isinstance(turn, str):
        return AIMessage(turn)
    calls = [
        {"name": name, "args": args, "id": f"call_{n}", "type": "tool_call"} for n, (name, args) in enumerate(turn)
    ]
    return AIMessage("", tool_calls=calls)


def seen(messages: list[BaseMessage]) -> list[list[str]]:
    """The texts of the tools, by turn of the model."""
    turns: list[list[str]] = []
    for message in messages:
        if isinstance(message, AIMessage) and message.tool_calls:
            turns.append([])
        elif isinstance(message, ToolMessage):
            turns[-1].append(str(message.content))
    return turns


def ask(agent: Any, given: Any, thread: str, *, is_async: bool) -> dict[str, Any]:
    config = {"configurable": {"thread_id": thread}}
    answer: dict[str, Any] = asyncio.run(agent.ainvoke(given, config)) if is_async else agent.invoke(given, config)
    return answer


HELLO = {"messages": [HumanMessage("Look after my orders.")]}


@pytest.mark.parametrize("is_async", [False, True])
def test_the_story_is_played_with_a_person_in_callgate(
    client: Client, session: str, world: World, *, is_async: bool
) -> None:
    agent = create_agent(model(world.story), world.tools, middleware=[CallgateMiddleware(client)])
    with person(client, session, world):
        answer = ask(agent, HELLO, session, is_async=is_async)
    assert answer["messages"][-1].content == "All done."
    check(world, seen(answer["messages"]))


@pytest.mark.parametrize("is_async", [False, pytest.param(True, marks=pytest.mark.skipif("not HAS_ASYNC_INTERRUPTS"))])
def test_the_story_is_played_with_interrupts(client: Client, session: str, world: World, *, is_async: bool) -> None:
    saver = InMemorySaver()
    turns = model(world.story)
    given: Any = HELLO
    for order, reason in world.answers.items():
        # Another process goes on, as it were: nothing but the checkpoint is left.
        agent = create_agent(turns, world.tools, middleware=[CallgateMiddleware(client)], checkpointer=saver)
        (asked,) = ask(agent, given, session, is_async=is_async)["__interrupt__"]
        assert asked.value["type"] == "callgate_approval"
        assert asked.value["args"] == {"order_id": order}
        assert "needs a person's approval" in asked.value["message"]
        assert asked.value["approval_id"] == questions(client, session)[0].approval_id
        assert asked.value["action_requests"][0]["name"] == "refund_order"
        given = Command(resume=True if reason is None else {"approve": False, "reason": reason, "by": "ada"})
    agent = create_agent(turns, world.tools, middleware=[CallgateMiddleware(client)], checkpointer=saver)
    answer = ask(agent, given, session, is_async=is_async)
    check(world, seen(answer["messages"]))
    assert [asked.resolved_by for asked in questions(client, session)] == ["ada", "user"]


def agent(
    client: Client, tools: list[Any], turns: list[Turn], saver: InMemorySaver | None = None, **options: Any
) -> Any:
    return create_agent(model(turns), tools, middleware=[CallgateMiddleware(client, **options)], checkpointer=saver)


def asks_itself(heard: list[Any]) -> Callable[[str], str]:
    def refund_order(order_id: str) -> str:
        """Pays an order back."""
        heard.append(interrupt("Really?"))
        return order_id

    return refund_order


@pytest.mark.parametrize("is_approved_in_callgate", [False, True])
def test_an_answer_to_callgate_is_none_to_the_tool(
    client: Client, session: str, world: World, *, is_approved_in_callgate: bool
) -> None:
    """The tool has a question of its own behind callgate's: a yes to the one must never be heard by the other."""
    heard: list[Any] = []
    turns: list[Turn] = [[("refund_order", {"order_id": world.paid})], "Done."]
    clerk = agent(client, [asks_itself(heard)], turns, InMemorySaver())
    (asked,) = ask(clerk, HELLO, session, is_async=False)["__interrupt__"]
    if is_approved_in_callgate:
        approve(client, asked.value["approval_id"])
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^refund_order interrupts the graph itself, and callgate asks"):
            ask(clerk, Command(resume=True), session, is_async=False)
    assert heard == []
    # The second time it was asked about anew, and nobody has answered that.
    assert [asked.state for asked in questions(client, session)] == [APPROVAL_STATE_PENDING, APPROVAL_STATE_APPROVED]


def test_a_tool_may_interrupt_where_nobody_is_asked(client: Client, session: str) -> None:
    heard: list[Any] = []

    def send_mail(to: str) -> str:
        """Sends a mail."""
        heard.append(interrupt("Really?"))
        return f"{heard[-1]} to {to}"

    clerk = agent(client, [send_mail], [[("send_mail", {"to": "ada"})], "Done."], InMemorySaver())
    (asked,) = ask(clerk, HELLO, session, is_async=False)["__interrupt__"]
    assert (asked.value, heard) == ("Really?", [])
    answer = ask(clerk, Command(resume="yes"), session, is_async=False)
    assert json.loads(seen(answer["messages"])[0][0])["results"] == "yes to ada"
    assert heard == ["yes"]


WRONG: list[Any] = ["perhaps", {"approved": True}, {"decisions": []}, {"decisions": [{"type": "ok"}]}]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_value_that_is_no_answer_is_told_to_the_developer(
    client: Client, session: str, world: World, wrong: Any
) -> None:
    turns: list[Turn] = [[("refund_order", {"order_id": world.paid})], "Done."]
    clerk = agent(client, world.tools, turns, InMemorySaver(), approval_wait_s=0.5)
    ask(clerk, HELLO, session, is_async=False)
    with pytest.raises(ValueError, match=r"does not decide the approval request of refund_order\. Allowed are"):
        ask(clerk, Command(resume=wrong), session, is_async=False)
    assert world.done == []
    assert [asked.state for asked in questions(client, session)] == [APPROVAL_STATE_PENDING]
    # The developer corrects it, and the graph goes on.
    answer = ask(clerk, Command(resume=True), session, is_async=False)
    assert json.loads(seen(answer["messages"])[0][0])["status"] == "success"


def test_an_edit_runs_what_the_person_chose(client: Client, session: str, world: World) -> None:
    turns: list[Turn] = [[("refund_order", {"order_id": world.paid})], "Done."]
    clerk = agent(client, world.tools, turns, InMemorySaver())
    (asked,) = ask(clerk, HELLO, session, is_async=False)["__interrupt__"]
    assert asked.value["review_configs"][0]["allowed_decisions"] == ["approve", "edit", "reject"]
    action = {"name": "refund_order", "args": {"order_id": world.unpaid}}
    edit = {"decisions": [{"type": "edit", "edited_action": action}]}
    answer = ask(clerk, Command(resume=edit), session, is_async=False)
    assert world.done == [f"refund {world.unpaid}"]
    told = json.loads(seen(answer["messages"])[0][0])
    assert (told["status"], told["results"]) == ("success", "refunded")
    assert "An approver replaced the arguments of this call" in told["warning"]
    assert world.unpaid in told["warning"]


@pytest.mark.parametrize("is_async", [False, pytest.param(True, marks=pytest.mark.skipif("not HAS_ASYNC_INTERRUPTS"))])
def test_a_turn_asks_once_for_all_its_calls(client: Client, session: str, world: World, *, is_async: bool) -> None:
    search = ("search_orders", {"query": "late"})
    orders = [world.paid, world.unpaid, f"o-{session}"]
    turns: list[Turn] = [[search, *(("refund_order", {"order_id": order}) for order in orders)], "Done."]
    said, saver = model(turns), InMemorySaver()

    def clerk() -> Any:
        """Of another process, as it were."""
        return create_agent(said, world.tools, middleware=[CallgateMiddleware(client)], checkpointer=saver)

    (asked,) = ask(clerk(), HELLO, session, is_async=is_async)["__interrupt__"]
    assert [request["args"]["order_id"] for request in asked.value["requests"]] == orders
    assert [action["args"]["order_id"] for action in asked.value["action_requests"]] == orders
    assert len(asked.value["review_configs"]) == 3
    # What may run has no permit, whose lease would end while a person thinks.
    assert world.done == []
    assert [call.tool for call in calls(client, session)] == ["refund_order"] * 3
    with pytest.raises(ValueError, match="True does not decide the 3 approval requests"):
        ask(clerk(), Command(resume=True), session, is_async=is_async)
    edit = {"name": "refund_order", "args": {"order_id": f"{orders[2]}-2"}}
    decisions = [{"type": "approve"}, {"type": "reject", "message": "no"}, {"type": "edit", "edited_action": edit}]
    answer = ask(clerk(), Command(resume={"decisions": decisions}), session, is_async=is_async)
    assert sorted(world.done) == sorted(["search late", f"refund {orders[0]}", f"refund {orders[2]}-2"])
    (texts,) = seen(answer["messages"])
    assert [json.loads(text)["status"] for text in texts] == ["success", "success", "approval_denied", "success"]
    assert len(questions(client, session)) == 3


def test_an_edit_to_another_tool_is_refused(client: Client, session: str, world: World) -> None:
    turns: list[Turn] = [[("refund_order", {"order_id": world.paid})], "Done."]
    clerk = agent(client, world.tools, turns, InMemorySaver())
    ask(clerk, HELLO, session, is_async=False)
    edit = {"decisions": [{"type": "edit", "edited_action": {"name": "drop_table", "args": {"name": "orders"}}}]}
    with pytest.raises(ValueError, match="an edit may change the arguments of refund_order, and not"):
        ask(clerk, Command(resume=edit), session, is_async=False)
    assert world.done == []


def test_what_another_process_showed_the_model_is_known(client: Client, session: str, world: World) -> None:
    """The model gave a reason; the process that showed it the parameter is gone before the call runs."""
    saver, account = InMemorySaver(), world.paid
    call = ("close_account", {"account": account, "justification": "They asked for it."})
    first = create_agent(
        model([[call]]),
        world.tools,
        middleware=[CallgateMiddleware(client)],
        checkpointer=saver,
        interrupt_before=["tools"],
    )
    ask(first, HELLO, session, is_async=False)
    second = agent(client, world.tools, ["Done."], saver)
    answer = ask(second, None, session, is_async=False)
    assert json.loads(seen(answer["messages"])[0][0])["status"] == "success"
    assert world.done == [f"close {account}"]


def test_the_model_is_shown_what_the_policy_wants(client: Client, session: str, world: World) -> None:
    said = model(["Done."])
    clerk = create_agent(said, world.tools, middleware=[CallgateMiddleware(client, repeat_parameter="again")])
    ask(clerk, HELLO, session, is_async=False)
    shown = {schema["function"]["name"]: schema["function"]["parameters"] for schema in said.shown[0]}
    assert set(shown["close_account"]["properties"]) == {"account", "justification", "again"}
    assert shown["close_account"]["required"] == ["account", "justification"]
    assert set(shown["search_orders"]["properties"]) == {"query", "again"}


def test_a_conversation_without_a_thread_is_one_session(client: Client, world: World) -> None:
    clerk = agent(client, world.tools, [*world.story[:1], "Yes?", *world.story[:1], "Done."])
    first = uuid.uuid4().hex
    answer = clerk.invoke({"messages": [HumanMessage("Find them.", id=first)]})
    answer = clerk.invoke({"messages": [*answer["messages"], HumanMessage("Once more.")]})
    texts = [json.loads(turn[0]) for turn in seen(answer["messages"])]
    # Another turn reads again: what was read is the past of another run.
    assert [text["status"] for text in texts] == ["success", "success"]
    assert len(calls(client, f"langchain-{first}")) == 2


def test_an_answer_of_other_interfaces_counts(client: Client, session: str, world: World) -> None:
    clerk = agent(client, world.tools, [*world.story[5:6], "Done."], InMemorySaver())
    ask(clerk, HELLO, session, is_async=False)
    said = {"decisions": [{"type": "reject", "message": "not this week"}]}
    answer = ask(clerk, Command(resume=said), session, is_async=False)
    assert "not this week" in seen(answer["messages"])[0][0]
    assert world.done == []


def test_what_a_tool_gives_beside_text_stays(client: Client, session: str) -> None:
    @tool(response_format="content_and_artifact")
    def search_orders() -> tuple[str, dict[str, int]]:
        """Finds orders."""
        return "two", {"raw": 2}

    @tool
    def get_weather() -> list[dict[str, Any]]:
        """Shows the sky."""
        return [{"type": "image", "base64": "AA==", "mime_type": "image/png"}]

    @tool
    def send_mail(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Changes the state."""
        return Command(update={"messages": [ToolMessage("sent", tool_call_id=tool_call_id)]})

    turns: list[Turn] = [[("search_orders", {}), ("get_weather", {}), ("send_mail", {})], "Done."]
    answer = ask(agent(client, [search_orders, get_weather, send_mail], turns), HELLO, session, is_async=False)
    orders, weather, mail = (message for message in answer["messages"] if isinstance(message, ToolMessage))
    assert orders.artifact == {"raw": 2}
    assert json.loads(str(orders.content))["results"] == "two"
    assert weather.content == [{"type": "image", "base64": "AA==", "mime_type": "image/png"}]
    assert json.loads(str(mail.content))["results"] == "sent"


def test_arguments_that_a_tool_does_not_take_are_no_success(client: Client, session: str, world: World) -> None:
    answer = ask(agent(client, world.tools, [[("search_orders", {"q": 1})], "Done."]), HELLO, session, is_async=False)
    told = json.loads(seen(answer["messages"])[0][0])
    assert (told["status"], told["error_type"], told["retryable"]) == ("error", "invalid_argument", False)
    assert "query" in told["error_message"]


def test_a_run_may_be_streamed(client: Client, session: str, world: World) -> None:
    clerk = agent(client, world.tools, [*world.story[:1], "All done."])
    config: Any = {"configurable": {"thread_id": session}}
    streamed = [name for update in clerk.stream(HELLO, config, stream_mode="updates") for name in update]
    assert [name for name in streamed if name in {"model", "tools"}] == ["model", "tools", "model"]
    assert world.done == ["search late"]


def test_a_call_without_a_session_is_refused_to_its_developer(client: Client, world: World) -> None:
    request = SimpleNamespace(state={}, runtime=SimpleNamespace(config={}), tool_call={}, tool=None)
    with pytest.raises(ValueError, match=r"^session_id: nothing says"):
        CallgateMiddleware(client).wrap_tool_call(request, lambda _: None)  # type: ignore[arg-type,return-value]


def token(plane: Server, role: str) -> str:
    command = [binary(), "tokens", "create", f"the-{role}", "--role", role, "--data-dir", str(plane.data)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def is_refused(client: Client) -> bool:
    """A server hears of its first token within seconds."""
    try:
        client.services.calls.DescribeTools(DescribeToolsRequest())
    except Unauthenticated:
        return True
    except CallgateError:
        pass
    return False


def test_an_agents_credential_answers_nothing(world: World) -> None:
    """With an approver's, the answer to an interrupt is one; without, the call waits for somebody else's."""
    turns: list[Turn] = [*world.story[5:7], "Done."]
    with Server(POLICY) as plane:
        tokens = [token(plane, role) for role in ("admin", "agent", "approver")]
        with Client(plane.address, token=tokens[1]) as clerk, Client(plane.address, token=tokens[2]) as approver:
            with Client(plane.address) as nobody:
                eventually(lambda: is_refused(nobody))
            guided = agent(clerk, world.tools, turns, InMemorySaver(), approvals=approver)
            ask(guided, HELLO, "guided", is_async=False)
            assert ask(guided, Command(resume=True), "guided", is_async=False)["__interrupt__"]
            assert world.done == [f"refund {world.paid}"]
            answer = ask(guided, Command(resume={"approve": False, "reason": "no"}), "guided", is_async=False)
            assert json.loads(seen(answer["messages"])[1][0])["status"] == "approval_denied"
            alone = agent(clerk, world.tools, turns[1:], InMemorySaver(), approval_wait_s=0.5)
            assert ask(alone, HELLO, "alone", is_async=False)["__interrupt__"]
            answer = ask(alone, Command(resume=True), "alone", is_async=False)
            assert json.loads(seen(answer["messages"])[0][0])["status"] == "approval_required"
    assert world.done == [f"refund {world.paid}"]
