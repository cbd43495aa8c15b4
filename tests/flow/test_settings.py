"""A flow's memory settings: they chain, belong to one flow, and are refused by the call that gets them wrong."""

from __future__ import annotations

import logging
import math

import pytest

import pgmem
from pgmem.flow.stage_memory import Config
from pgmem.memory.models import Models
from tests.flow.support import flow_of, step, talk


@pytest.fixture
def settings() -> pgmem.StageMemory:
    """Settings that know no database at all."""
    return pgmem.StageMemory(Models())


async def summarise(request):
    return "a summary"


def test_the_set_up_calls_chain(settings):
    assert settings.set_summary_model(provider="openai", name="gpt-4o", api_key="k", retry_attempts=3) is settings
    assert settings.set_summary_config(min_messages=8, recent_messages=4) is settings
    assert settings.enable_summary("hotel-explore") is settings


async def test_memory_before_the_base_constructor_is_an_error_that_names_it(session):
    class Hasty(pgmem.Flow):
        steps = (step("Explore"),)

        def __init__(self, session):
            self.memory.enable_summary("Explore")

    with pytest.raises(RuntimeError, match=r"call super\(\).__init__\(session\) before self.memory") as caught:
        Hasty(session)
    assert isinstance(caught.value, pgmem.FlowNotReady)


async def test_a_flow_without_its_base_constructor_does_not_start(session):
    class Forgetful(pgmem.Flow):
        steps = (step("Explore"),)

        def __init__(self, session):
            pass

    with pytest.raises(pgmem.FlowNotReady, match="super"):
        await Forgetful(session).start()


async def test_settings_belong_to_one_flow_object(session, llm):
    explore = step("Explore")
    set_up = flow_of(explore, llm=llm, enable=("Explore",), min_messages=8, recent_messages=4)(session)
    plain = type("Plain", (pgmem.Flow,), {"steps": [explore]})(session)

    assert (set_up.memory._config.min_messages, set_up.memory._config.recent) == (8, 4)
    assert (plain.memory._config.min_messages, plain.memory._config.recent) == (16, 8)
    assert plain.memory._summariser is None
    assert not plain.memory._enabled


@pytest.mark.parametrize("value", [7, 0, -1, 8.0, "8", True, None, math.nan, 10**30])
def test_min_messages_is_an_integer_from_8_and_the_call_that_sets_another_says_so(settings, value):
    with pytest.raises(ValueError, match=r"min_messages is .*it must be an integer from 8"):
        settings.set_summary_config(min_messages=value)


def test_8_is_the_least_min_messages(settings):
    settings.set_summary_config(min_messages=8)

    assert settings._config.min_messages == 8


@pytest.mark.parametrize("value", [0, -1, 1.0, True, None, "1"])
def test_recent_messages_is_an_integer_from_1(settings, value):
    with pytest.raises(pgmem.InvalidArgument, match=r"recent_messages is .*it must be an integer from 1"):
        settings.set_summary_config(min_messages=12, recent_messages=value)


@pytest.mark.parametrize("value", [11, 12, 13])
def test_recent_messages_past_min_less_two_is_refused_with_both_numbers_and_the_range(settings, value):
    with pytest.raises(
        pgmem.InvalidArgument, match=rf"recent_messages is {value} and min_messages is 12: .* from 1 to 10, min_messages - 2"
    ):
        settings.set_summary_config(min_messages=12, recent_messages=value)


@pytest.mark.parametrize("value", [1, 10])
def test_recent_messages_from_1_to_min_less_two_is_fine(settings, value):
    settings.set_summary_config(min_messages=12, recent_messages=value)

    assert settings._config.recent == value


def test_a_config_that_is_refused_changes_nothing(settings):
    settings.set_summary_config(min_messages=12, recent_messages=3)

    with pytest.raises(pgmem.InvalidArgument):
        settings.set_summary_config(min_messages=20, recent_messages=19)
    with pytest.raises(pgmem.InvalidArgument):
        settings.set_summary_config(min_messages=9, recent_messages=0)

    assert (settings._config.min_messages, settings._config.recent) == (12, 3)


def test_min_alone_lowers_the_default_recent_to_fit_and_says_so(settings, caplog):
    caplog.set_level(logging.INFO, "pgmem")

    settings.set_summary_config(min_messages=8)

    assert settings._config.recent == 4
    assert "recent_messages is not set, and its default of 8 is lowered to 4 to fit min_messages 8" in caplog.text


def test_min_alone_is_checked_against_the_recent_that_was_set_before(settings):
    settings.set_summary_config(min_messages=30, recent_messages=12)

    with pytest.raises(pgmem.InvalidArgument, match="recent_messages is 12 and min_messages is 8:"):
        settings.set_summary_config(min_messages=8)


def test_recent_alone_is_checked_against_the_default_min_and_the_error_says_that_it_is_one(settings):
    with pytest.raises(pgmem.InvalidArgument, match=r"recent_messages is 15 and min_messages is 16 \(the default\)"):
        settings.set_summary_config(recent_messages=15)


def test_every_legal_pair_leaves_a_message_to_summarise():
    pairs = [(least, recent) for least in range(8, 65) for recent in range(1, least - 1)]

    policies = [Config(least, recent).policy(pgmem.Policy()) for least, recent in pairs]

    assert len(pairs) > 1_900
    # the plain history that fires holds threshold turns, the system prompt's slot besides
    assert all(policy.threshold - policy.keep_recent >= 1 for policy in policies)
    assert [(policy.threshold + 1, policy.keep_recent) for policy in policies] == pairs


@pytest.mark.parametrize(("least", "recent", "advised"), [(16, 4, False), (16, 8, False), (16, 3, True), (16, 9, True)])
def test_recent_outside_a_quarter_to_a_half_of_min_is_advice_and_no_error(settings, caplog, least, recent, advised):
    caplog.set_level(logging.INFO, "pgmem")

    settings.set_summary_config(min_messages=least, recent_messages=recent)

    assert ("quarter" in caplog.text) is advised
    assert all(record.levelno <= logging.INFO for record in caplog.records)


@pytest.mark.parametrize("attempts", [0, -1, True, 2.0, "3"])
def test_retry_attempts_is_the_total_and_an_integer_from_1(settings, attempts):
    with pytest.raises(pgmem.InvalidArgument, match=r"retry_attempts is .*integer from 1"):
        settings.set_summary_model(provider="openai", name="m", api_key="k", retry_attempts=attempts)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"provider": "opanai", "name": "m"}, "did you mean 'openai'"),
        ({"provider": "anthropic", "name": "m"}, "'anthropic': use 'openai'"),
        ({"provider": "openai"}, "name="),
        ({}, "provider"),
        ({"model": "gpt-4o"}, "name it with provider='openai', name='gpt-4o'"),
        ({"model": 7}, "type int"),
        ({"model": summarise, "name": "m"}, "either"),
        ({"model": summarise, "retry_attempts": 2}, "either"),
    ],
)
def test_a_summary_model_that_cannot_be_is_refused_where_it_is_set(settings, arguments, says):
    with pytest.raises(pgmem.InvalidArgument, match=says):
        settings.set_summary_model(**arguments)


@pytest.mark.parametrize(
    "name", ["", "1a", "a b", "a" * 129, "Ü", "explore\U0001f3e8", "a\0", "__proto__", "x'; drop table turns", None, 7]
)
def test_a_namespace_is_checked_by_the_call_and_by_the_class(settings, name):
    with pytest.raises(pgmem.InvalidArgument, match="namespace"):
        settings.enable_summary(name)
    if name is not None:
        with pytest.raises(pgmem.InvalidArgument, match="namespace"):
            step("Explore", name)


def test_a_namespace_of_128_characters_is_fine(settings):
    assert settings.enable_summary("a" * 128) is settings
    assert step("Explore", "a" * 128).namespace == "a" * 128


@pytest.mark.parametrize("typo", ["hotel-explor", "Hotel-Explore", "hotel_explore"])
async def test_summaries_of_a_namespace_that_no_step_uses_are_an_error_at_the_start_with_the_nearest(session, llm, typo):
    flow = flow_of(step("Explore", "hotel-explore"), step("Present"), llm=llm, enable=(typo,))(session)

    with pytest.raises(pgmem.InvalidArgument) as caught:
        await flow.start()

    assert f"enable_summary({typo!r})" in str(caught.value)
    assert "did you mean 'hotel-explore'?" in str(caught.value)
    assert "the steps use 'hotel-explore', 'Present'" in str(caught.value)


async def test_summaries_without_anything_to_write_them_are_an_error_at_the_start(session):
    flow = flow_of(step("Explore"), enable=("Explore",))(session)

    with pytest.raises(pgmem.InvalidArgument, match="nothing can write them: call set_summary_model"):
        await flow.start()


@pytest.mark.parametrize("way", ["of the flow", "of the memory", "no model"])
async def test_a_model_or_a_strategy_without_one_is_enough_to_start(app_url, key, way):
    config = {"strategy": "tool_clear"} if way == "no model" else {}
    async with pgmem.open(app_url, summary_model=summarise if way == "of the memory" else None) as memory:
        flow = flow_of(step("Explore"), enable=("Explore",), min_messages=8, **config)(await memory.session(key))
        if way == "of the flow":
            flow.memory.set_summary_model(summarise)
        await flow.start()
        await talk(flow, 4)

        nodes = [node async for node in flow.session.namespace("Explore").nodes()]
        assert [node.strategy for node in nodes] == ["tool_clear" if way == "no model" else "llm"]


@pytest.mark.parametrize("session_of", [None, "key", 7])
def test_a_flow_is_over_a_session(session_of):
    with pytest.raises(pgmem.InvalidArgument, match=r"await memory.session\(key\)"):
        pgmem.Flow(session_of)


class Sync(pgmem.Step):
    def prompt(self, state):
        return ""

    def on_enter(self):
        pass


class Late(pgmem.Step):
    async def prompt(self, state):
        return ""


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([], "name the classes of its steps"),
        (None, "name the classes of its steps"),
        ([object], "subclasses of pgmem.Step"),
        ([step("A"), step("A")], "names A twice"),
        ([type("Mute", (pgmem.Step,), {})], "Mute has no prompt"),
        ([Sync], "async def on_enter"),
        ([Late], "Late.prompt is async"),
        ([type("Text", (pgmem.Step,), {"prompt": "You are helpful."})], "Text.prompt cannot be called"),
        ([type("Bare", (pgmem.Step,), {"prompt": lambda self: ""})], "Bare.prompt cannot be called"),
        ([step("Fine"), type("Second", (pgmem.Step,), {})], "Second has no prompt"),
        ([step("Übersicht")], "set namespace"),
        ([step("_Hidden")], "namespace"),
    ],
)
async def test_steps_that_cannot_be_are_an_error_at_the_start(session, steps, says):
    flow = type("TestFlow", (pgmem.Flow,), {"steps": steps})(session)

    with pytest.raises(pgmem.InvalidArgument, match=says):
        await flow.start()


async def test_a_step_can_be_named_by_its_class(session, llm):
    explore, plain = step("Explore", "hotel-explore"), step("Plain")
    flow = flow_of(explore, plain, llm=llm)(session)

    flow.memory.enable_summary(explore).enable_summary(plain)

    assert list(flow.memory._enabled) == ["hotel-explore", "Plain"]


async def test_settings_after_the_start_are_refused(session, llm):
    flow = await flow_of(step("Explore"), llm=llm)(session).start()

    for late in (
        lambda: flow.memory.enable_summary("Explore"),
        lambda: flow.memory.set_summary_config(min_messages=8),
        lambda: flow.memory.set_summary_model(summarise),
    ):
        with pytest.raises(pgmem.FlowNotReady, match="in its __init__"):
            late()


async def test_a_step_whose_init_forgets_the_flow_is_an_error(session):
    def init(self, flow):
        pass

    with pytest.raises(pgmem.InvalidArgument, match=r"super\(\).__init__\(flow\)"):
        await flow_of(step("A", __init__=init))(session).start()


async def test_every_enabled_namespace_is_checked(session, llm):
    flow = flow_of(step("A"), llm=llm, enable=("A", "B"))(session)

    with pytest.raises(pgmem.InvalidArgument, match=r"enable_summary\('B'\)"):
        await flow.start()


async def test_models_are_kept_by_their_key_and_server_and_not_without_end(monkeypatch):
    models = Models()
    one = models.openai("m", api_key="k1", base_url=None, retry_attempts=1)
    monkeypatch.setenv("OPENAI_API_KEY", "k2")
    of_environment = models.openai("m", api_key=None, base_url=None, retry_attempts=1)
    monkeypatch.setenv("OPENAI_API_KEY", "k3")

    assert models.openai("m", api_key="k1", base_url=None, retry_attempts=1) is one
    assert models.openai("m", api_key="k1", base_url=None, retry_attempts=2) is not one
    assert models.openai("m", api_key=None, base_url=None, retry_attempts=1) is not of_environment
    for number in range(100):
        models.openai("m", api_key=f"tenant-{number}", base_url=None)
    assert len(models._made) == 32
    await models.close()


async def test_a_model_is_closed_with_the_memory(app_url, key, llm):
    closed = []
    async with pgmem.open(app_url) as memory:
        flow = await flow_of(step("A"), llm=llm, enable=("A",), min_messages=8)(await memory.session(key)).start()
        await talk(flow, 4)
        (model,) = memory._models._made.values()
        close = model.close

        async def watched():
            closed.append(True)
            await close()

        model.close = watched

    assert (len(llm.requests), closed) == (1, [True])


async def test_a_step_whose_init_does_not_take_the_flow_is_an_error_at_the_start(session):
    def init(self):
        pass

    with pytest.raises(pgmem.InvalidArgument, match="takes the flow"):
        await flow_of(step("A", __init__=init))(session).start()
