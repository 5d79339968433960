rule tables:
    input:
        [table_files(name) for name in EXPERIMENTS],
        upstream(*EXPERIMENTS),
    localrule: True


rule table:
    input:
        f"{RESULTS}/data/{{experiment}}.parquet",
    output:
        csv=report(
            f"{RESULTS}/tables/{{experiment}}.csv",
            caption="../report/table.rst",
            category=paper_of,
            subcategory="Tables",
            labels={"experiment": "{experiment}", "as": "table"},
        ),
        md=f"{RESULTS}/tables/{{experiment}}.md",
        tex=f"{RESULTS}/tables/{{experiment}}.tex",
        record=f"{RESULTS}/tables/{{experiment}}.json",
    log:
        f"{RESULTS}/logs/tables/{{experiment}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/tables/{{experiment}}.tsv"
    localrule: True
    conda:
        "../../envs/dprepro.yaml"
    params:
        code=lambda wildcards: code("table", target=wildcards.experiment, kind=EXPERIMENTS[wildcards.experiment].kind),
    message:
        "Writing the table of {wildcards.experiment}"
    shell:
        "python -m dprepro table {wildcards.experiment} --data {input:q} --out {output.csv:q} > {log:q} 2>&1"
