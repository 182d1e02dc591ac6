"""Files for the record: the same decision as the page, no markup from data, and an entry that the registry takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from click.testing import CliRunner

import empriv
from empriv.cli.main import main
from empriv.errors import InputError
from empriv.report.export import Accepted, html_of, impact_assessment, markdown_of, registry_entry, to_fill, yaml_of
from report.cases import NASTY

TARGET = "delta <= 0.2 at 0.1"


def an_object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object", "additionalProperties": False, "required": list(required), "properties": properties,
    }  # fmt: skip


TEXT = {"type": "string", "minLength": 1}


def texts(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, TEXT)


# the fields that the published schema of opendp/deployments-registry-data has (schemas/deployments-schema.yaml);
# objects hold no others
BASIC = ("name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region",
         "publication_date")  # fmt: skip
ENTRY = an_object(
    ("url_slug", "deployment"),
    url_slug=TEXT,
    deployment=an_object(
        ("basic", "administrative"),
        basic=an_object(
            BASIC,
            **texts("name", "description", "intended_use", "data_product_region"),
            data_curators={
                "type": "array", "minItems": 1,
                "items": an_object(
                    ("data_curator_name", "data_curator_type"), data_curator_name=TEXT,
                    data_curator_type={"enum": ["Government", "Industry", "Nonprofit"]},
                ),
            },
            data_product_type={"enum": ["Summary statistics", "Machine learning model", "Dataset", "Synthetic data",
                                        "Interactive API", "SQL queries"]},
            data_product_sector={"enum": ["Technology", "Healthcare", "Education", "Government", "Energy", "Finance"]},
            publication_date={"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
        ),
        dp_variant=an_object(
            variant_name={"enum": ["Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"]},
            **texts("data_domain", "unprotected_quantities"),
        ),
        privacy_loss=an_object(
            **texts("privacy_unit", "privacy_unit_details", "privacy_parameters_details"),
            number_of_privacy_units={"type": "integer"},
            privacy_parameters=an_object(
                epsilon={"type": "number"}, delta={"type": ["number", "string"]}, rho={"type": "number"}
            ),
        ),
        deployment_model=an_object(
            model_name={"enum": ["Local", "Central", "Shuffle", "Federated", "Varies"]},
            release_type={"enum": ["One release", "Many releases"]},
            data_source_type={"enum": ["Static", "Dynamic"]},
            access_type={"enum": ["Interactive", "Non-interactive"]},
            **texts("model_name_details", "trust_assumptions", "actors", "release_type_details",
                    "data_source_type_details", "access_type_details"),
        ),
        implementation=an_object(**texts(
            "preprocessing_and_hyperparameter_tuning", "mechanisms", "composition", "post_processing", "justification",
            "utility", "additional_information",
        )),
        administrative=an_object(
            ("status", "registry_authors", "tier"),
            evidence_sources={"type": "object"},
            status={"enum": ["Converted", "Draft", "Pending", "Changes Required", "Approved"]},
            registry_authors={"type": "array", "minItems": 1, "items": TEXT},
            tier={"enum": [1, 2, 3]},
        ),
    ),
)  # fmt: skip


def audit(effect: float) -> empriv.Audit:
    rng = np.random.default_rng(0)
    q = rng.normal(100.0, 10.0, 120)
    days = np.datetime64("2024-01-01") + np.arange(120)
    made = empriv.Results.from_arrays(q, [q - effect], databases=days, individuals=[NASTY[0]])
    return empriv.audit(made, epsilon=0.1, known="nothing", unit="min", noun="patient")


@pytest.fixture(scope="module")
def calm() -> empriv.Audit:
    return audit(0.137)


@pytest.fixture(scope="module")
def loud() -> empriv.Audit:
    return audit(30.0)


def judged(made: empriv.Audit) -> list[tuple[str, Any]]:
    return [(TARGET, made.verdict(epsilon=0.1, delta=0.2))]


def test_a_section_says_what_the_page_says(calm: empriv.Audit, loud: empriv.Audit) -> None:
    for made in (calm, loud):
        decision = made.decision(judged(made)[0][1])
        text = markdown_of(impact_assessment(made, judged(made), accepted=Accepted("2030-01-31", checker="A. Jones")))
        for sentence in filter(None, (decision.line, decision.reason, decision.promise, decision.condition)):
            assert sentence in text.replace("\\", "")
        for part in (
            "Singling out: ",
            "Linkability: ",
            "Inference: ",
            "2030-01-31",
            "A. Jones",
            made.results.digest[:32],
        ):
            assert part in text
    outcomes = {row[3] for row in impact_assessment(calm, judged(calm))[1].rows}
    assert outcomes == {"pass"}
    assert "fail" in {row[3] for row in impact_assessment(loud, judged(loud))[1].rows}


def test_text_from_outside_is_no_markup(calm: empriv.Audit) -> None:
    sections = impact_assessment(calm, judged(calm), accepted=Accepted(exception=" ".join(NASTY), checker="a | b"))
    text = markdown_of(sections)
    assert "<script" not in text.replace("\\<", "")
    assert "a \\| b" in text
    html = html_of(sections)
    assert "<script" not in html
    assert "<img" not in html


def entry_of(made: empriv.Audit) -> dict[str, Any]:
    return yaml.safe_load(yaml_of(registry_entry(made, judged(made), curator_type="Government")))


def test_an_entry_has_the_fields_of_the_registry_and_no_figure_of_the_data(calm: empriv.Audit) -> None:
    for made, release in ((calm, "One release"), (calm.repeated(2), "Many releases")):
        verdicts = [("", made.verdict(epsilon=0.1, delta=0.4))]
        entry = yaml.safe_load(yaml_of(registry_entry(made, verdicts, curator_type="Industry")))
        jsonschema.validate(entry, ENTRY)
        assert entry["deployment"]["deployment_model"]["release_type"] == release
    entry = entry_of(calm)
    assert entry["deployment"]["dp_variant"]["variant_name"] == "Custom"
    assert entry["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.1, "delta": 0.2}
    day = judged(calm)[0][1].day
    for figure in (day.cover, day.largest, day.upper, calm.results.digest[:8]):
        assert (figure if isinstance(figure, str) else f"{figure:.3g}") not in str(entry)
    filled = "deployment.basic.data_curators.data_curator_name"
    assert filled in to_fill(entry)
    entry["deployment"]["basic"]["data_curators"][0]["data_curator_name"] = "An office"
    assert filled not in to_fill(entry)


@pytest.mark.parametrize(
    ("part", "field", "wrong"),
    [("basic", "data_product_region", None), ("basic", "data_product_sector", "to be filled in"),
     ("basic", "data_curators", ["An office"]), ("deployment_model", "release_type", "Single release"),
     ("deployment_model", "model_name_description", "no such field"), ("administrative", "tier", None),
     ("dp_variant", "variant_name", "Empirical"), ("privacy_loss", "privacy_parameters", {"sigma": 1.0})],
)  # fmt: skip
def test_a_broken_entry_is_seen(calm: empriv.Audit, part: str, field: str, wrong: Any) -> None:
    entry = entry_of(calm)
    entry["deployment"][part][field] = wrong
    if wrong is None:
        del entry["deployment"][part][field]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(entry, ENTRY)


def test_an_entry_is_refused_for_what_may_not_be_published(loud: empriv.Audit, calm: empriv.Audit) -> None:
    with pytest.raises(InputError, match="must be met for an entry, got: Do not publish as it is"):
        registry_entry(loud, judged(loud), curator_type="Industry")
    with pytest.raises(InputError, match="must hold a target"):
        registry_entry(calm, [], curator_type="Industry")
    with pytest.raises(InputError, match="`curator_type` must be one of"):
        registry_entry(calm, judged(calm), curator_type="Club")
    with pytest.raises(InputError, match="`review` must be a date"):
        Accepted(review="soon")
    noise = empriv.design_noise(loud, epsilon=0.1, delta=0.2, granularity=0.25)
    entry = registry_entry(loud, judged(loud), curator_type="Industry", noise=noise)
    assert noise.law.words.rstrip(".") in entry["deployment"]["implementation"]["mechanisms"]


def test_the_command_writes_both_and_refuses_in_a_sentence(
    calm: empriv.Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    calm.save("audit.empriv")

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(main, ["export", "audit.empriv", *arguments])

    done = run("--target", TARGET, "--dpia", "release.html", "--registry", "entry.yaml", "--curator-type", "Nonprofit")
    assert done.exit_code == 0
    # a slow machine also says how far it is
    wrote, *unfilled = [line for line in done.output.splitlines() if "so far" not in line]
    assert wrote == "Wrote release.html, entry.yaml."
    missing = "To be filled in, in entry.yaml: deployment.basic.data_curators.data_curator_name, "
    assert " ".join(unfilled).startswith(missing)
    assert Path("release.html").stat().st_mode & 0o777 == 0o600
    jsonschema.validate(yaml.safe_load(Path("entry.yaml").read_text(encoding="utf-8")), ENTRY)
    for wrong, said in (
        ((), "--dpia, --public or --registry"), (("--registry", "e.yaml"), "needs --curator-type"),
        (("--dpia", "a.pdf"), "must end in"), (("--dpia", "a.md"), "Missing option"),
        (("--dpia", "a.md", "--target", TARGET, "--review", "x"), "`review` must be a date"),
        (("--dpia", "a.md", "--target", TARGET, "--noise", "audit.empriv"), "--noise must be a file that"),
    ):  # fmt: skip
        refused = run(*wrong)
        assert refused.exit_code in (1, 2)
        assert said in refused.output + refused.stderr
