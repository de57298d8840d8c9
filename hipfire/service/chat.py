"""One chat from the queue to the engine: waits for its turn, for the model, for the prompt. Knows no HTTP."""

import secrets
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Self

import attrs
import trio

from hipfire.catalog.store import InstalledModel
from hipfire.errors import EngineUnavailable, HipfireError, Unsupported
from hipfire.service.admission import Admission
from hipfire.service.answer import Answer
from hipfire.service.constraint import grammar_of, vocabulary_of
from hipfire.service.conversation import encode_conversation, with_single_gaps
from hipfire.service.generation import Generation
from hipfire.service.link import EngineLink
from hipfire.service.pipeline import AnswerPipeline
from hipfire.service.reasoning import ReasoningPlan, plan_reasoning
from hipfire.service.reasoning_cap import span_cap
from hipfire.service.reasoning_defaults import with_defaults
from hipfire.service.request import ChatJob
from hipfire.service.residency import LoadedModel, Residency
from hipfire.service.sampling import fit_max_tokens, refuse_hopeless_length, resolve_sampling
from hipfire.service.schema_check import Verdict
from hipfire.service.stats import Tally
from hipfire.text.dialects.syntax import Tool
from hipfire.text.markup import Markup
from hipfire.text.prompt import prompt_tail
from hipfire.wire.messages import Generate, Vocabulary


@attrs.frozen
class _Prepared:
    message: Generate
    vocabulary: Vocabulary | None
    markup: Markup


class Chat:
    """Made by `Service.open_chat`. Leaving its `with` block, whenever, frees the place and stops the engine."""

    def __init__(
        self,
        job: ChatJob,
        model: InstalledModel,
        *,
        admission: Admission,
        bring: Callable[[InstalledModel], Awaitable[InstalledModel]],
        residency: Residency,
        link: EngineLink,
        tally: Tally,
        draw_seed: Callable[[], int],
        verdict: Verdict,
    ) -> None:
        self.model = model.tag
        """The model that answers."""
        self._job = job
        self._wanted = model
        self._admission = admission
        self._bring = bring
        self._residency = residency
        self._link = link
        self._tally = tally
        self._draw_seed = draw_seed
        self._verdict = verdict
        self._held = ExitStack()
        self._generation: Generation | None = None

    async def start(self) -> Generation:
        """Wait for a turn, load the model where it is not loaded, and set the engine to work.

        Raises HipfireError's subclasses.
        """
        try:
            self._generation = await self._start()
        except HipfireError:
            self._tally.failed()
            raise
        return self._generation

    async def _start(self) -> Generation:
        # A download takes no place in the queue from those whose model is here.
        wanted = await self._bring(self._wanted)
        arrived_at = trio.current_time()
        place = self._held.enter_context(self._admission.enter())
        await place.turn()
        model = await self._residency.acquire(wanted)
        self._held.callback(self._residency.release)
        queue_ms = 1000 * (trio.current_time() - arrived_at)
        wishes = with_defaults(self._job.reasoning, model.settings)
        plan = plan_reasoning(wishes, model.text.family, model=self.model)
        plan = attrs.evolve(plan, warnings=(*plan.warnings, *self._verdict.warnings))
        prepared = await trio.to_thread.run_sync(partial(self._prepared, model, plan), abandon_on_cancel=True)
        if self._residency.resident is not model:
            raise EngineUnavailable("the engine died meanwhile and is being restarted", hint="try again")
        ticket = self._link.generate(prepared.message, prepared.vocabulary)
        # The place and the model are free when the engine is through, be the client slow or gone.
        ticket.at_end(self._held.pop_all().close)
        pipeline = AnswerPipeline(
            model.text.tokenizer,
            stop=self._job.stop,
            markup=prepared.markup,
            shown=model.text.shown,
            keeps_one_call=self._job.keeps_one_call,
        )
        answer = Answer(pipeline, n_prompt=len(prepared.message.prompt), queue_ms=queue_ms, plan=plan)
        return Generation(ticket, answer, self._tally)

    def _prepared(self, model: LoadedModel, plan: ReasoningPlan) -> "_Prepared":
        """What the engine is asked for; runs in a worker thread. Raises InvalidRequest."""
        job, settings, text = self._job, model.settings, model.text
        if job.tools and not text.family.has_calls:
            raise Unsupported(f"tools: how {self.model} calls them is not known to this build", param="tools")
        refuse_hopeless_length(
            sum(len(message.content.strip()) for message in job.messages),
            longest_token=text.tokenizer.longest_token,
            context_length=model.engine.context_length,
        )
        messages = job.messages
        if settings.prompt.normalize:
            messages = tuple(with_single_gaps(message) for message in messages)
        prompt = encode_conversation(
            text,
            messages,
            system=settings.prompt.system,
            arguments={**job.template_arguments, **plan.arguments},
            tools=job.tools,
        )
        begins_inside = text.family.begins_inside(prompt_tail(prompt, text.tokenizer, text.shown))
        max_tokens = fit_max_tokens(
            job.max_tokens,
            settings.generation.max_tokens,
            n_prompt=len(prompt),
            context_length=model.engine.context_length,
        )
        declared = {
            tool.name: Tool(name=tool.name, parameters=tool.parameters, is_strict=tool.is_strict) for tool in job.tools
        }
        grammar = grammar_of(
            job,
            text,
            tools=declared,
            begins_inside=begins_inside,
            may_reason=plan.may_reason,
            is_lenient=self._verdict.is_lenient,
        )
        message = Generate(
            id=secrets.token_hex(8),
            prompt=tuple(prompt),
            max_tokens=max_tokens,
            stop_ids=tuple(sorted(model.text.tokenizer.eos_ids)),
            sampling=resolve_sampling(
                job.sampling, settings.generation, n_vocab=model.engine.n_vocab, draw_seed=self._draw_seed
            ),
            cap=None if plan.cap is None else span_cap(plan.cap, text, begins_inside=begins_inside),
            grammar=grammar,
        )
        vocabulary = None if grammar is None or self._link.knows_vocabulary else vocabulary_of(text.tokenizer)
        return _Prepared(message, vocabulary, text.family.markup(tools=declared, begins_inside=begins_inside))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()
        if self._generation is not None:
            self._generation.close()
        self._tally.close()
