rule figures:
    input:
        [figure_files(name) for name in EXPERIMENTS],
        upstream(*EXPERIMENTS),
    localrule: True


rule figure:
    input:
        f"{RESULTS}/data/{{experiment}}.parquet",
    output:
        png=report(
            f"{RESULTS}/figures/{{experiment}}.png",
            caption="../report/figure.rst",
            category=paper_of,
            subcategory="Figures",
            labels={"experiment": "{experiment}", "as": "figure"},
        ),
        pdf=f"{RESULTS}/figures/{{experiment}}.pdf",
        svg=f"{RESULTS}/figures/{{experiment}}.svg",
        caption=f"{RESULTS}/figures/{{experiment}}.md",
        record=f"{RESULTS}/figures/{{experiment}}.json",
    log:
        f"{RESULTS}/logs/figures/{{experiment}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/figures/{{experiment}}.tsv"
    localrule: True
    conda:
        "../../envs/dprepro.yaml"
    params:
        code=lambda wildcards: code("figure", target=wildcards.experiment, kind=EXPERIMENTS[wildcards.experiment].kind),
    message:
        "Drawing {wildcards.experiment}"
    shell:
        "python -m dprepro figure {wildcards.experiment} --data {input:q} --out {output.png:q} > {log:q} 2>&1"
