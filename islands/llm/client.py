"""`LlmClient`: asks language models, and answers every request with a `Completion` or a `Failure` in time.

    client = LlmClient(read_models(["openai/gpt-4o", "ollama/qwen2.5-coder:32b,unpriced"]), take_keys(os.environ))
    await client.prepare()
    outcome = await client.complete(Request(messages=(...,), role=Role.EXECUTOR, operator="mutate", island=3))

A request is tried several times: at once by another model of its role where there is one, after a pause with jitter by
the same one. A model that fails again and again is left alone for a while, and nothing is asked that the budget does
not cover.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pydantic import Field

from db.errors import ConfigError
from db.frozen import Record
from db.llm_calls import ANSWERED, CUT_OFF, LlmCall
from islands.llm.breaker import Breaker, Circuit
from islands.llm.budget import LlmBudget
from islands.llm.chat_body import Answer
from islands.llm.exchange import (
    CALL_LIMIT_S,
    Completion,
    Failure,
    FailureKind,
    Outcome,
    Request,
    estimate_tokens,
    most_tokens,
)
from islands.llm.faults import Refusal
from islands.llm.keys import Keys
from islands.llm.models import ModelSpec, Price, of_role
from islands.llm.provider import Provider, most_output_tokens, price_of
from islands.llm.recording import Key, Recorder, Recording

_GRACE_S = 0.05  # the limit of a call strikes before that of its request, so that the model is known to be slow
_BLAMELESS = (FailureKind.BAD_REQUEST, FailureKind.INTERNAL)
_OF_A_ROLE = (FailureKind.AUTHENTICATION, FailureKind.BUDGET, FailureKind.NO_MODEL)
_JITTER = 0.5


class LlmSettings(Record):
    """How stubborn the client is. Times in seconds."""

    n_tries: int = Field(default=4, ge=1)  # calls for one request
    call_limit_s: float = Field(default=CALL_LIMIT_S, gt=0)
    n_in_flight: int = Field(default=1000, ge=1)  # calls at once
    backoff_s: float = Field(default=1.0, gt=0)  # before the same model is asked again; doubled each time
    most_backoff_s: float = Field(default=60.0, gt=0)
    n_breaker_failures: int = Field(default=5, ge=1)  # in a row: the model is left alone
    breaker_open_s: float = Field(default=30.0, gt=0)  # for so long; doubled each time


class _Offer(NamedTuple):
    """A model with what is known of it."""

    spec: ModelSpec
    price: Price | None
    n_tokens_out: int
    breaker: Breaker


class _Errand:
    """One request on its way: what was tried, what it cost, and whom there is no use asking again."""

    def __init__(self, request: Request, rng: random.Random, now: float) -> None:
        self.request, self.rng = request, rng
        self.started, self.deadline = now, now + request.limit_s
        self.n_tries = 0
        self.usd = 0.0
        self.is_unpriced = False  # a model without a price was called
        self.excluded: set[str] = set()  # addresses
        self.empty: set[str] = set()  # addresses whose answer held nothing, and was paid for: one more is enough
        self.ready_at: dict[str, float] = {}
        self.n_asked: Counter[str] = Counter()
        self.last = Refusal(FailureKind.NO_MODEL, "no model was asked")
        self.last_model = ""

    def failure(self, refusal: Refusal, now: float) -> Failure:
        return Failure(
            kind=refusal.kind,
            reason=refusal.reason,
            is_final=refusal.is_final,
            model=self.last_model,
            cost_usd=None if self.is_unpriced else self.usd,
            seconds=max(0.0, now - self.started),
            n_tries=self.n_tries,
        )


def _forget(call: LlmCall) -> None:
    """Where nobody keeps calls."""


class LlmClient:
    """Asks models for one run, from one event loop. Never raises for what a provider does."""

    def __init__(
        self,
        models: Iterable[ModelSpec],
        keys: Keys,
        *,
        settings: LlmSettings | None = None,
        budget: LlmBudget | None = None,
        run_id: str = "",
        rng_seed: int = 0,
        journal: Callable[[LlmCall], None] = _forget,
        recorder: Recorder | None = None,
        replay: Recording | None = None,
    ) -> None:
        """
        Args:
            rng_seed: of the choice among models and of jitter; equal requests choose equally.
            journal: is told every call, as it ends.
            recorder: keeps what every request came to.
            replay: answers every request instead of a model; nothing is asked, no network is used.
        """
        self.models = tuple(models)
        self.settings = settings or LlmSettings()
        self.budget = budget or LlmBudget()
        self._provider = Provider(keys)
        self._run_id, self._rng_seed = run_id, rng_seed
        self._journal, self._recorder, self._replay = journal, recorder, replay
        self._offers: dict[ModelSpec, _Offer] = {}
        self._breakers: dict[str, Breaker] = {}
        self._n_seen: Counter[Key] = Counter() if recorder is None else Counter(recorder.n_kept)
        self._n_taken_in: Counter[Key] = Counter(self._n_seen)
        self._slots = asyncio.Semaphore(self.settings.n_in_flight)
        self._preparing = asyncio.Lock()

    async def prepare(self) -> None:
        """Imports litellm and looks up prices, which takes seconds; `complete` does it otherwise.

        Raises:
            ConfigError: a model without a key, an address or a price, an unknown provider, or no litellm.
        """
        async with self._preparing:
            if self._offers or self._replay is not None:
                return
            await self._provider.prepare()
            self._offers = {spec: self._offer(spec) for spec in self.models}

    async def complete(self, request: Request) -> Outcome:
        """What a request comes to, within its limit of time. Cancelling it cancels its call."""
        key = Key.of(request)
        nth = self._n_seen[key]
        self._n_seen[key] += 1
        if self._replay is not None:
            return self._replay.find(request, nth)
        outcome = await self._complete(request, nth)
        if self._recorder is not None:
            self._recorder.keep(request, nth, outcome)
        return outcome

    def due_turn(self, request: Request) -> int | None:
        """Of a replay: at which turn the recorded run took in what this request will come to, or `NEVER`. None where
        nobody recorded that, or nothing is replayed."""
        return self._replay.turn_of(request, self._n_seen[Key.of(request)]) if self._replay is not None else None

    def taken_in(self, request: Request, turn: int) -> None:
        """What an answered request came to was told to its island, at a turn of the run: a recording keeps it."""
        key = Key.of(request)
        if self._recorder is not None:
            self._recorder.note_turn(request, self._n_taken_in[key], turn)
        self._n_taken_in[key] += 1

    def circuits(self) -> dict[str, Circuit]:
        """Which models are asked, tried or left alone now, by model and server."""
        return {address: breaker.circuit for address, breaker in self._breakers.items()}

    def has_model(self, request: Request) -> bool:
        """Whether a request would be asked of anybody now: a model that is in order, and money. After `prepare`.

        A replay answers every request. To behave equally when it is replayed, a run acts on what `complete` says.
        """
        if self._replay is not None:
            return True
        offers = self._asked_for(request)
        allowed = [o for o in offers if o.breaker.circuit in (Circuit.CLOSED, Circuit.HALF_OPEN)]
        return any(self._is_affordable(o, request) for o in allowed)

    # ---------------------------------------------------------------------------------------------------- private

    async def _complete(self, request: Request, nth: int) -> Outcome:
        rng = random.Random(f"{self._rng_seed} {request.island} {request.asked} {request.prompt_hash} {nth}")
        errand = _Errand(request, rng, time.monotonic())
        try:
            await self.prepare()
            errand.started = time.monotonic()
            errand.deadline = errand.started + request.limit_s
            async with asyncio.timeout(request.limit_s + _GRACE_S):
                return await self._try_all(errand)
        except TimeoutError:
            late = Refusal(FailureKind.TIMEOUT, f"no answer within {request.limit_s:.3g} s: {errand.last.reason}")
            return errand.failure(late, time.monotonic())
        except ConfigError as error:
            refusal = Refusal(FailureKind.NO_MODEL, f"{error.message}: {error.hint}", is_final=True)
            return errand.failure(refusal, time.monotonic())

    async def _try_all(self, errand: _Errand) -> Outcome:
        while errand.n_tries < self.settings.n_tries:
            chosen = await self._choose(errand)
            if isinstance(chosen, Refusal):
                return errand.failure(chosen, time.monotonic())
            outcome = await self._try(chosen, errand)
            if isinstance(outcome, Completion | Failure):
                return outcome
        return errand.failure(errand.last, time.monotonic())

    # ------------------------------------------------------------------------------------------ whom to ask, and when

    def _offer(self, spec: ModelSpec) -> _Offer:
        self._provider.check(spec)
        settings = self.settings
        breaker = self._breakers.setdefault(
            spec.address,
            Breaker(
                n_failures=settings.n_breaker_failures,
                open_s=settings.breaker_open_s,
                pause_s=settings.backoff_s,
                clock=time.monotonic,
            ),
        )
        return _Offer(spec, price_of(spec), most_output_tokens(spec), breaker)

    def _asked_for(self, request: Request) -> list[_Offer]:
        """The models of a request: those with its id, or those of its role."""
        if request.model:
            named = [spec for spec in self.models if spec.model_id == request.model]
            specs = tuple(spec for spec in named if spec.role is request.role) or tuple(named)
        else:
            specs = of_role(self.models, request.role)
        return [self._offers[spec] for spec in specs if spec in self._offers]

    async def _choose(self, errand: _Errand) -> _Offer | Refusal:
        """Who is asked next, when they may be asked; or why nobody is."""
        while True:
            offers = [o for o in self._asked_for(errand.request) if o.spec.address not in errand.excluded]
            allowed = [o for o in offers if o.breaker.circuit in (Circuit.CLOSED, Circuit.HALF_OPEN)]
            if not allowed:
                return self._in_its_role(self._nobody(errand), errand.request)
            allowed = [o for o in allowed if self._is_affordable(o, errand.request)] or allowed
            waits = {o: self._wait_s(o, errand) for o in allowed}
            ready = [o for o in allowed if waits[o] <= 0]
            if ready:
                liked = [o for o in ready if o.spec.model_id == errand.request.preferred] or ready
                return errand.rng.choices(liked, weights=[o.spec.weight for o in liked])[0]
            wait_s = min(waits.values())
            if time.monotonic() + wait_s >= errand.deadline:
                return self._too_late(errand, wait_s)
            await asyncio.sleep(wait_s * (1 + _JITTER * errand.rng.random()))

    def _wait_s(self, offer: _Offer, errand: _Errand) -> float:
        back_off = errand.ready_at.get(offer.spec.address, 0.0) - time.monotonic()
        return max(offer.breaker.pause_left_s, back_off)

    def _nobody(self, errand: _Errand) -> Refusal:
        if errand.n_tries:
            return errand.last
        offers = self._asked_for(errand.request)
        if not offers:
            return Refusal(FailureKind.NO_MODEL, f"no model for {errand.request.asked}", is_final=True)
        reasons = "; ".join(f"{o.spec.model_id} is {o.breaker.circuit}: {o.breaker.reason}" for o in offers)
        is_final = all(o.breaker.circuit is Circuit.GONE for o in offers)
        return Refusal(FailureKind.NO_MODEL, reasons, is_final)

    def _in_its_role(self, refusal: Refusal, request: Request) -> Refusal:
        """A refusal that would end all correspondence is not final where a model of another role may still be asked."""
        left = [o for o in self._offers.values() if o.breaker.circuit is not Circuit.GONE]
        is_of_a_role = refusal.kind in _OF_A_ROLE and self._asked_for(request)
        if is_of_a_role and any(self._is_affordable(o, request) for o in left):
            return refusal._replace(is_final=False)
        return refusal

    def _is_affordable(self, offer: _Offer, request: Request) -> bool:
        return not self.budget.exhausted(offer.price, *self._most_tokens(offer, request))

    def _too_late(self, errand: _Errand, wait_s: float) -> Refusal:
        if errand.n_tries:
            return errand.last
        return Refusal(FailureKind.RATE_LIMIT, f"every model asks to be left alone for {wait_s:.3g} s more")

    # --------------------------------------------------------------------------------------------------- one call

    async def _try(self, offer: _Offer, errand: _Errand) -> Outcome | None:
        """One call. None: it failed, or somebody else found out meanwhile that the model does not work."""
        async with self._slots:
            ticket = await self.budget.reserve(offer.price, *self._most_tokens(offer, errand.request))
            if isinstance(ticket, str):
                spent = Refusal(
                    FailureKind.BUDGET, f"the budget of language models is used up: {ticket}", is_final=True
                )
                return errand.failure(self._in_its_role(spent, errand.request), time.monotonic())
            if offer.breaker.circuit in (Circuit.OPEN, Circuit.GONE):
                self.budget.release(ticket)
                return None
            return await self._call(offer, errand, ticket)

    async def _call(self, offer: _Offer, errand: _Errand, ticket: int) -> Completion | None:
        offer.breaker.begin()
        errand.n_tries += 1
        errand.last_model = offer.spec.model_id
        started = time.monotonic()
        result: Answer | Refusal = Refusal(FailureKind.TIMEOUT, "cancelled")
        try:
            limit_s = min(self.settings.call_limit_s, errand.deadline - started, self.budget.time_left_s)
            result = await self._provider.ask(
                offer.spec, errand.request, self._n_tokens_out(offer, errand.request), max(limit_s, 1e-3)
            )
        except asyncio.CancelledError:
            offer.breaker.abandoned()
            raise
        finally:
            call = self._account(offer, errand, ticket, result, time.monotonic() - started)
        if isinstance(result, Answer) and result.text.strip():
            offer.breaker.answered()
            return _completion(result, call, errand, time.monotonic())
        self._refuse(offer, errand, _emptiness(result) if isinstance(result, Answer) else result)
        return None

    def _refuse(self, offer: _Offer, errand: _Errand, refusal: Refusal) -> None:
        """Remembers a failure: for this request, and for the model."""
        address = offer.spec.address
        errand.last = refusal
        if refusal.is_final or (refusal.kind is FailureKind.EMPTY and address in errand.empty):
            errand.excluded.add(address)
        if refusal.kind is FailureKind.EMPTY:
            errand.empty.add(address)
        pause_s = self.settings.backoff_s * 2.0 ** errand.n_asked[address]
        errand.n_asked[address] += 1
        pause_s = min(pause_s, self.settings.most_backoff_s) * (1 + _JITTER * errand.rng.random())
        errand.ready_at[address] = time.monotonic() + pause_s
        if refusal.is_gone:
            offer.breaker.lost(refusal)
        elif refusal.kind is FailureKind.RATE_LIMIT:
            offer.breaker.limited(refusal)
        elif refusal.kind in _BLAMELESS:
            offer.breaker.abandoned()
        else:
            offer.breaker.failed(refusal)

    def _account(
        self, offer: _Offer, errand: _Errand, ticket: int, result: Answer | Refusal, seconds: float
    ) -> LlmCall:
        """Settles what a call came to. One that was given up may have been paid for: its prompt counts."""
        n_in, n_out, is_estimated = _tokens(errand.request, result)
        n_cached = result.n_tokens_cached if isinstance(result, Answer) else 0
        usd = None if offer.price is None else offer.price.of(n_in, n_out, n_cached)
        self.budget.settle(ticket, usd or 0.0, n_in + n_out)
        errand.usd += usd or 0.0
        errand.is_unpriced |= usd is None
        refusal = _emptiness(result) if isinstance(result, Answer) and not result.text.strip() else result
        call = LlmCall(
            call_id=uuid.uuid4().hex,
            run_id=self._run_id,
            island=errand.request.island,
            operator=errand.request.operator,
            model=offer.spec.model_id,
            prompt_hash=errand.request.prompt_hash,
            n_tokens_in=n_in,
            n_tokens_out=n_out,
            has_estimated_tokens=is_estimated,
            cost_usd=usd,
            seconds=seconds,
            outcome=str(refusal.kind) if isinstance(refusal, Refusal) else _outcome_of(refusal),
            reason=refusal.reason if isinstance(refusal, Refusal) else "",
        )
        self._journal(call)
        return call

    def _n_tokens_out(self, offer: _Offer, request: Request) -> int:
        return min(offer.n_tokens_out, request.max_output_tokens or offer.n_tokens_out)

    def _most_tokens(self, offer: _Offer, request: Request) -> tuple[int, int]:
        """Tokens in and out that a call cannot exceed."""
        return most_tokens(request.messages), self._n_tokens_out(offer, request)


def _tokens(request: Request, result: Answer | Refusal) -> tuple[int, int, bool]:
    """Tokens in and out of a call, and whether they are estimates."""
    n_in_estimated = sum(estimate_tokens(message.content) for message in request.messages)
    if isinstance(result, Refusal):
        is_paid = result.kind is FailureKind.TIMEOUT
        return (n_in_estimated, 0, True) if is_paid else (0, 0, False)
    n_in, n_out = result.n_tokens_in, result.n_tokens_out
    is_estimated = n_in is None or n_out is None
    n_in = n_in_estimated if n_in is None else n_in
    return n_in, estimate_tokens(result.text) if n_out is None else n_out, is_estimated


def _emptiness(answer: Answer) -> Refusal:
    why = "the limit of tokens came before any text" if answer.finish_reason == "length" else answer.finish_reason
    return Refusal(FailureKind.EMPTY, f"an empty answer ({why})")


def _outcome_of(answer: Answer) -> str:
    return CUT_OFF if answer.finish_reason == "length" else ANSWERED


def _completion(answer: Answer, call: LlmCall, errand: _Errand, now: float) -> Completion:
    return Completion(
        text=answer.text,
        model=call.model,
        finish_reason=answer.finish_reason,
        n_tokens_in=call.n_tokens_in,
        n_tokens_out=call.n_tokens_out,
        cost_usd=None if call.cost_usd is None else errand.usd,
        seconds=now - errand.started,
        n_tries=errand.n_tries,
        has_estimated_tokens=call.has_estimated_tokens,
    )
