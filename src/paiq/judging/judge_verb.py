"""What `paiq judge` does between its words and its lines."""

from dataclasses import dataclass
from pathlib import Path

from paiq.errors import ConfigError, suggest
from paiq.judging import prompts as templates
from paiq.judging import routes
from paiq.judging.dry_run import forecast
from paiq.judging.exact import ExactPayloads, ExactSender
from paiq.judging.jobs import Folder, payloads
from paiq.judging.judge import Plan, Summary, judge
from paiq.judging.ledger_verb import tell
from paiq.judging.routes import Route
from paiq.judging.runner import Options
from paiq.judging.types import Failure
from paiq.progress import Report
from paiq.world.scoring import rules_digest

EXACT = "exact"
EXACT_ROUTE = "world-exact"


@dataclass(frozen=True, kw_only=True)
class Task:
    """The words of the command."""

    folder: Path
    route: str | None
    slices: tuple[str, ...] = ()
    images: Path | None = None
    scores: Path | None = None
    prompts: Path | None = None
    any_prompts: bool = False

    def load_route(self) -> Route:
        if not self.route:
            raise ConfigError(f"name a judge with --route: {', '.join(_names())}, or a YAML file")
        return routes.load(EXACT_ROUTE if self.route == EXACT else self.route)

    def plan(self) -> tuple[Plan, list[str]]:
        """What is to be judged, and what to tell about the templates."""
        route = self.load_route()
        folder = Folder(path=self.folder, images=self.images or self.folder)
        names = folder.slices(self.slices)
        if route.offline:
            return self._exact(route, folder, names)
        used = templates.load(self.prompts, any_digest=self.any_prompts)
        plan = folder.plan(route, payloads(folder, route, used, names), scores=self.scores)
        families = {job.expected.family for job in plan.jobs}
        told = [line for line in used.report() if line.split(" ")[0] in families]
        return plan, [f"template {line}" for line in told]

    def _exact(self, route: Route, folder: Folder, names: list[str]) -> tuple[Plan, list[str]]:
        builders = {name: ExactPayloads(route=route, run=name) for name in names}
        plan = folder.plan(route, builders, scores=self.scores)
        return plan, [f"exact scores by the rules of the world ({rules_digest()})"]


def route_lines() -> list[str]:
    """One line per route that ships with the package."""
    lines = [f"{EXACT:<20} exact scores of the embedded world, offline"]
    for name in routes.available():
        route = routes.load(name)
        key = f", key in {route.key_variable}" if route.key_variable else ""
        lines.append(f"{name:<20} {route.evaluator} for {', '.join(route.families)}{key}")
    return lines


def options(budget: float | None, concurrency: int | None, grant: str | None) -> Options:
    if concurrency is not None and concurrency < 1:
        raise ConfigError(f"--concurrency must be at least 1, got {concurrency}")
    classes = {str(failure) for failure in Failure}
    if grant is not None and grant not in classes:
        raise ConfigError(
            f"no class {grant!r}; have {', '.join(sorted(classes))}.{suggest(grant, classes)}"
        )
    return Options(budget=budget, concurrency=concurrency, grant=Failure(grant) if grant else None)


def left(plan: Plan) -> int:
    return forecast(plan).requests


def go(plan: Plan, options: Options, report: Report) -> Summary:
    answerer = ExactSender(route=plan.route) if plan.route.offline else None
    return judge(plan, answerer=answerer, options=options, report=report)


def told(summary: Summary, plan: Plan) -> list[str]:
    """How things stand after a run."""
    lines = tell(summary.coverage)
    if summary.spent:
        lines.append(f"cost of all runs so far: ${summary.spent:,.2f} by the route's prices")
    if summary.superseded:
        lines.append(
            f"{summary.superseded:,} expectations changed since the last run and are judged anew; "
            "the old records stay in the ledger"
        )
    if summary.changed:
        lines.append(
            f"the files of {len(summary.changed)} requests changed during the run "
            f"({', '.join(summary.changed[:3])}, ...); run again"
        )
    if summary.ended:
        lines.append(f"stopped: {summary.ended}. Type the same command again to go on")
    return [*lines, f"ledger {plan.ledger}, scores {plan.scores}"]


def _names() -> list[str]:
    return [EXACT, *routes.available()]
