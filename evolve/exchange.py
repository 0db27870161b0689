"""The exchange: a run without a network writes down what it asks language models, and somebody carries the answers.

A sitting of such a run first hears the answers that were brought, has what becomes of them judged, searches as far as
its budget goes, writes down what its islands ask next, and waits. What islands heard, what they ask, and where their
conversations stand is stored in one transaction: a sitting that is killed begins again with the same answers.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, count, zip_longest
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from db.errors import ConfigError
from db.llm_questions import LlmQuestion, QuestionStatus, of_status
from db.records import Candidate
from evolve import conversations
from evolve.cluster import answer
from evolve.config import RunConfig
from islands.dialogues import Question
from islands.llm.budget import LlmBudget, Spend
from islands.llm.exchange import Completion, Failure, Request, most_tokens
from islands.llm.models import ModelSpec, Price, of_role, read_models
from islands.llm.provider import batch_price_of, most_output_tokens

EXCHANGE = "exchange"
WAITS = "waiting for answers"
_OUTCOME: TypeAdapter[Completion | Failure] = TypeAdapter(Completion | Failure)

Settle = Callable[[int, Sequence[Candidate]], Awaitable[object]]


class Offer(NamedTuple):
    """A model that questions are written down for, and what a million of its tokens costs in a batch."""

    spec: ModelSpec
    price: Price | None


def is_exchanged(config: RunConfig) -> bool:
    """Whether questions are written down instead of asked."""
    return config.llm.mode == EXCHANGE


def offers_of(config: RunConfig) -> list[Offer]:
    """For whom questions may be written down. No key is needed, and no network.

    Raises:
        ConfigError: no model, one that cannot be read or has no price, or a recording that would stay empty.
    """
    if not config.models:
        raise ConfigError("an exchange must know whom its questions are for", "name a model: --model provider/name")
    for name in ("record", "replay"):
        if getattr(config.llm, name):
            raise ConfigError(f"llm.mode={EXCHANGE} and llm.{name} exclude each other", "leave one of them out")
    models = read_models(config.models)
    specs = [spec.model_copy(update={"max_output_tokens": most_output_tokens(spec)}) for spec in models]
    return [Offer(spec, batch_price_of(spec)) for spec in specs]


class Exchange:
    """The exchange of one sitting of a run.

    Args:
        budget: of language models, for all sittings together; what earlier ones spent is counted.
    """

    def __init__(
        self,
        run_id: str,
        offers: Sequence[Offer],
        budget: LlmBudget,
        *,
        archive: Any,
        islands: Sequence[Any],
        rng_seed: int = 0,
    ) -> None:
        self._run_id = run_id
        self._offers = {offer.spec: offer for offer in offers}
        self._budget = budget
        self._archive = archive
        self._islands = list(islands)
        self._rng_seed = rng_seed
        self._questions: list[LlmQuestion] = []  # of all sittings
        self._heard: list[str] = []

    async def take_up(self) -> None:
        """Give islands back the conversations of the last sitting, before they are told what it judged."""
        self._budget.start()
        self._questions = await answer(self._archive.llm_questions.remote(self._run_id))
        await conversations.take_up(self._archive, self._run_id, self._islands, is_once=False)

    async def hear(self, settle: Settle, *, n_at_once: int, is_over: Callable[[], bool]) -> None:
        """Tell islands every answer that was brought, and have judged what becomes of it.

        Args:
            settle: judges candidates of an island, keeps the verdicts and tells them.
            n_at_once: answers of one island on their way through the judge.
            is_over: whether somebody interrupts; answers that were not heard then wait for the next sitting.
        """
        brought: dict[int, deque[LlmQuestion]] = {}
        for one in of_status(self._questions, QuestionStatus.ANSWERED):
            brought.setdefault(one.island, deque()).append(one)
        async with asyncio.TaskGroup() as chains:
            for answers in brought.values():
                for _ in range(min(n_at_once, len(answers))):
                    chains.create_task(self._hear_all(answers, settle, is_over))

    async def write_down(self, n_per_island: int | None) -> int:
        """Store what islands heard, and at most `n_per_island` questions that each asks next.

        None: the run was interrupted, so nothing is asked and what waits goes on waiting.

        Returns:
            How many questions wait for an answer.
        """
        waiting = {_key_of(one): one for one in of_status(self._questions, QuestionStatus.WAITING)}
        asked = list(waiting.values())
        if n_per_island is not None:
            asked = self._pick(await self._ask(n_per_island), waiting)
            # what is not asked again belonged to a conversation that is over
            over = waiting.keys() - {_key_of(one) for one in asked}
            self._heard += [waiting[key].question_id for key in over]
        dialogues = await conversations.dumped(self._islands)
        await answer(self._archive.exchange.remote(self._run_id, self._heard, asked, dialogues))
        return len(asked)

    # ---------------------------------------------------------------------------------------------------- private

    async def _hear_all(self, answers: deque[LlmQuestion], settle: Settle, is_over: Callable[[], bool]) -> None:
        while answers and not is_over():
            one = answers.popleft()
            outcome = _OUTCOME.validate_python(one.answer)
            island = self._islands[one.island]
            candidate: Candidate | None = await answer(island.answered.remote(one.dialogue_id, outcome))
            if candidate is not None:
                await settle(one.island, [candidate])
            self._heard.append(one.question_id)

    async def _ask(self, n_per_island: int) -> list[Question]:
        """What islands ask, in turn: where money is short no island gets all of it."""
        asked = await asyncio.gather(*(answer(island.questions.remote(n_per_island)) for island in self._islands))
        return [question for question in chain(*zip_longest(*asked)) if question is not None]

    def _pick(self, wanted: Sequence[Question], waiting: dict[Any, LlmQuestion]) -> list[LlmQuestion]:
        """The questions that are paid for; one that waited already stays as it is, so that a late answer finds it."""
        picked: list[LlmQuestion] = []
        number = count(len(self._questions))
        for question in wanted:
            request = question.request
            known = waiting.get((request.island, question.dialogue_id, request.prompt_hash))
            offer = self._choose(request)
            is_paid = offer is not None and self._reserve(offer, request)
            if known is not None:
                picked.append(known)
            elif offer is not None and is_paid:
                picked.append(self._written(question, offer, next(number)))
        return picked

    def _written(self, question: Question, offer: Offer, n: int) -> LlmQuestion:
        request = question.request
        return LlmQuestion(
            question_id=f"{self._run_id}-q{n:05d}",
            run_id=self._run_id,
            island=request.island,
            dialogue_id=question.dialogue_id,
            operator=request.operator,
            model=offer.spec.model_id,
            prompt_hash=request.prompt_hash,
            request=request.model_dump(mode="json", round_trip=True),
            spec=offer.spec.model_dump(mode="json"),
        )

    def _choose(self, request: Request) -> Offer | None:
        """The model that a question is for: the same for the same question. None where its role has none."""
        named = tuple(spec for spec in self._offers if spec.model_id == request.model)
        specs = named or of_role(self._offers, request.role)
        rng = random.Random(f"{self._rng_seed} {request.island} {request.asked} {request.prompt_hash}")
        return self._offers[rng.choices(specs, [spec.weight for spec in specs])[0]] if specs else None

    def _reserve(self, offer: Offer, request: Request) -> bool:
        """Counts the most that an answer can cost; False where the budget does not cover it."""
        n_in, n_out = most_tokens(request.messages), offer.spec.max_output_tokens
        if self._budget.exhausted(offer.price, n_in, n_out):
            return False
        usd = offer.price.of(n_in, n_out) if offer.price else 0.0
        self._budget.count(Spend(usd=usd, n_tokens=n_in + n_out, n_calls=1))
        return True


def _key_of(one: LlmQuestion) -> tuple[int, str, str]:
    """Equal for equal questions of one conversation."""
    return one.island, one.dialogue_id, one.prompt_hash
