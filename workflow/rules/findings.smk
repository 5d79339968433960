# The names of these tables and figures look like those of experiments.
ruleorder: paper_findings > table
ruleorder: drawn_findings > table
ruleorder: findings_figure > figure


rule findings:
    input:
        [findings_files(name) for name in EXPERIMENTS],
    localrule: True


rule paper_findings:
    output:
        csv=report(
            f"{RESULTS}/tables/{{paper}}_findings.csv",
            caption="../report/findings.rst",
            category=paper_of,
            subcategory="Findings",
            labels={"experiment": "{paper}_findings", "as": "table"},
        ),
        md=f"{RESULTS}/tables/{{paper}}_findings.md",
        record=f"{RESULTS}/tables/{{paper}}_findings.json",
    log:
        f"{RESULTS}/logs/findings/{{paper}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/findings/{{paper}}.tsv"
    wildcard_constraints:
        paper="|".join(paper for paper, figures in FINDINGS.items() if not figures) or "(?!)",
    conda:
        "../../envs/dprepro.yaml"
    threads: 1
    resources:
        runtime=growing(60),
        mem_mb=growing(2000),
        gpu=0,
    params:
        # The findings run on this population.
        code=code("findings", dataset="population_valley"),
        data="",
    message:
        "Holding the claims of {wildcards.paper} against what can be computed"
    shell:
        "python -m dprepro findings {wildcards.paper} --out {output.csv:q} {params.data} > {log:q} 2>&1"


# The same, and a table of what figures show, from the same computation.
use rule paper_findings as drawn_findings with:
    output:
        csv=report(
            f"{RESULTS}/tables/{{paper}}_findings.csv",
            caption="../report/findings.rst",
            category=paper_of,
            subcategory="Findings",
            labels={"experiment": "{paper}_findings", "as": "table"},
        ),
        md=f"{RESULTS}/tables/{{paper}}_findings.md",
        record=f"{RESULTS}/tables/{{paper}}_findings.json",
        data=f"{RESULTS}/data/{{paper}}_findings.parquet",
    wildcard_constraints:
        paper="|".join(paper for paper, figures in FINDINGS.items() if figures) or "(?!)",
    params:
        code=code("findings", dataset="population_valley"),
        data=lambda wildcards, output: shlex.join(["--data", output.data]),


rule findings_figure:
    input:
        f"{RESULTS}/data/{{paper}}_findings.parquet",
    output:
        png=report(
            f"{RESULTS}/figures/{{paper}}_{{figure}}.png",
            caption="../report/findings_figure.rst",
            category=paper_of,
            subcategory="Findings",
            labels={"experiment": "{paper}_{figure}", "as": "figure"},
        ),
        pdf=f"{RESULTS}/figures/{{paper}}_{{figure}}.pdf",
        svg=f"{RESULTS}/figures/{{paper}}_{{figure}}.svg",
        caption=f"{RESULTS}/figures/{{paper}}_{{figure}}.md",
        record=f"{RESULTS}/figures/{{paper}}_{{figure}}.json",
    log:
        f"{RESULTS}/logs/figures/{{paper}}_{{figure}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/figures/{{paper}}_{{figure}}.tsv"
    wildcard_constraints:
        paper="|".join(FINDINGS),
        figure="|".join(figure for figures in FINDINGS.values() for figure in figures) or "(?!)",
    localrule: True
    conda:
        "../../envs/dprepro.yaml"
    params:
        code=lambda wildcards: code("figure", target=f"{wildcards.paper}_{wildcards.figure}", kind="findings"),
    message:
        "Drawing {wildcards.paper}_{wildcards.figure}"
    shell:
        "python -m dprepro figure {wildcards.paper}_{wildcards.figure} --data {input:q} --out {output.png:q} > {log:q} 2>&1"
