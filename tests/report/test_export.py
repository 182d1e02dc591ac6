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
from empriv.report.export import Accepted, html_of, impact_assessment, markdown_of, registry_entry, yaml_of
from report.cases import NASTY

TARGET = "delta <= 0.2 at 0.1"


def texts(*names: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(names),
        "additionalProperties": False,
        "properties": {name: {"type": "string", "minLength": 1} for name in names},
    }


# the fields of an entry, as entries of the registry have them; objects hold no others
PRODUCT = texts(
    "name", "intended_use", "data_product_type", "data_product_region", "description", "publication_date",
    "data_product_sector",
)  # fmt: skip
PRODUCT["properties"]["data_curators"] = {"type": "array", "items": {"type": "string"}, "minItems": 1}
LOSS = texts("privacy_unit", "privacy_unit_description", "privacy_parameters_description")
LOSS["properties"]["privacy_parameters"] = {
    "type": "object",
    "required": ["epsilon", "delta"],
    "additionalProperties": False,
    "properties": {"epsilon": {"type": "number", "minimum": 0}, "delta": {"type": "number", "minimum": 0}},
}
LOSS["required"].append("privacy_parameters")
RESOURCES = texts("sources")
RESOURCES["properties"]["registry_authors"] = {"type": "array", "items": {"type": "string"}}
PARTS = {
    "product": PRODUCT,
    "dp_flavor": texts(
        "name", "input_metric", "bound_on_input_distance", "output_measure", "bound_on_output_distance", "data_domain",
        "unprotected_quantities",
    ),
    "privacy_loss": LOSS,
    "model": texts(
        "model_name", "model_name_description", "actors", "release_type", "release_type_description",
        "data_source_type", "data_source_type_description", "access_type", "access_type_description",
    ),
    "accounting": texts("post_processing", "composition"),
    "implementation": texts("pre_processing_eda_hyperparameter_tuning", "mechanisms", "justification"),
    "resources": RESOURCES,
}  # fmt: skip
ENTRY = {
    "type": "object",
    "required": ["status", "tier", "deployment"],
    "additionalProperties": False,
    "properties": {
        "status": {"enum": ["Draft", "Published"]},
        "tier": {"enum": [1, 2, 3]},
        "deployment": {
            "type": "object", "required": list(PARTS), "additionalProperties": False, "properties": PARTS,
        },
    },
}  # fmt: skip


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


def test_an_entry_has_the_fields_of_the_registry_and_no_figure_of_the_data(calm: empriv.Audit) -> None:
    entry = yaml.safe_load(yaml_of(registry_entry(calm, judged(calm))))
    jsonschema.validate(entry, ENTRY)
    assert entry["deployment"]["dp_flavor"]["name"] == "Custom"
    assert entry["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.1, "delta": 0.2}
    day = judged(calm)[0][1].day
    for figure in (day.typical, day.largest, day.upper):
        assert f"{figure:.3g}" not in str(entry)
    del entry["deployment"]["model"]["actors"]
    with pytest.raises(jsonschema.ValidationError, match="actors"):
        jsonschema.validate(entry, ENTRY)


def test_an_entry_is_refused_for_what_may_not_be_published(loud: empriv.Audit, calm: empriv.Audit) -> None:
    with pytest.raises(InputError, match="must be met for an entry, got: Do not publish as it is"):
        registry_entry(loud, judged(loud))
    with pytest.raises(InputError, match="must hold a target"):
        registry_entry(calm, [])
    with pytest.raises(InputError, match="`review` must be a date"):
        Accepted(review="soon")
    noise = empriv.design_noise(loud, epsilon=0.1, delta=0.2, granularity=0.25)
    entry = registry_entry(loud, judged(loud), noise=noise)
    assert noise.law.words in entry["deployment"]["implementation"]["mechanisms"]


def test_the_command_writes_both_and_refuses_in_a_sentence(
    calm: empriv.Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    calm.save("audit.empriv")

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(main, ["export", "audit.empriv", *arguments])

    done = run("--target", TARGET, "--dpia", "release.html", "--registry", "entry.yaml")
    assert (done.exit_code, done.output) == (0, "Wrote release.html, entry.yaml.\n")
    assert Path("release.html").stat().st_mode & 0o777 == 0o600
    jsonschema.validate(yaml.safe_load(Path("entry.yaml").read_text(encoding="utf-8")), ENTRY)
    for wrong, said in (
        ((), "--dpia or --registry"), (("--dpia", "a.pdf"), "must end in"), (("--dpia", "a.md"), "Missing option"),
        (("--dpia", "a.md", "--target", TARGET, "--review", "x"), "`review` must be a date"),
        (("--dpia", "a.md", "--target", TARGET, "--noise", "audit.empriv"), "--noise must name saved noise"),
    ):  # fmt: skip
        refused = run(*wrong)
        assert refused.exit_code in (1, 2)
        assert said in refused.output + refused.stderr
