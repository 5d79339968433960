from snakemake.utils import min_version

min_version("9.10")


configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/runs.smk"
include: "workflow/rules/sweeps.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/privacy.smk"


rule all:
    default_target: True
    input:
        rules.figures.input,
        rules.tables.input,
        rules.privacy.input,
    localrule: True


# One alias per experiment: `snakemake --cores 2 wyx17_fig1` makes its figure and its table, and those of its parts.
for name in EXPERIMENTS:

    rule:
        name:
            name
        input:
            figure_files(name),
            table_files(name),
            part_files(name, figure_files),
            part_files(name, table_files),
        localrule: True
