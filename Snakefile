from snakemake.utils import min_version

min_version("9.27")


configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/runs.smk"
include: "workflow/rules/sweeps.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/findings.smk"
include: "workflow/rules/privacy.smk"
include: "workflow/rules/report.smk"


onerror:
    say(explain(Path(RESULTS), log))
    make_the_rest(workflow, Path(RESULTS), log)


# One block: a second one would take the place of the first.
onstart:
    check_device()
    run_started(workflow)


rule all:
    default_target: True
    input:
        rules.figures.input,
        rules.tables.input,
        rules.findings.input,
        rules.privacy.input,
        rules.report.input,
    localrule: True


# One alias per experiment: `snakemake --cores 2 wyx17_fig1` makes its figure and its table, those of its parts and of
# what stands beside them, and the findings on its paper.
for name in EXPERIMENTS:

    rule:
        name:
            name
        input:
            figure_files(name),
            table_files(name),
            part_files(name, figure_files, beside=True),
            part_files(name, table_files, beside=True),
            findings_files(name),
            upstream(name),
        localrule: True
