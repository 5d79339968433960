# All results as one page that needs nothing else. The times in it come from the benchmarks that its inputs' jobs left.
rule report_page:
    input:
        results=report_files(),
    output:
        f"{RESULTS}/report.html",
    log:
        f"{RESULTS}/logs/report/page.log",
    benchmark:
        f"{RESULTS}/benchmarks/report/page.tsv"
    localrule: True
    conda:
        "../../envs/dprepro.yaml"
    params:
        job=f"{RESULTS}/jobs/report.json",
        spec=of_value(report_spec()),
        results=lambda wildcards, output: str(Path(output[0]).parent),
        code=code("report"),
        # By its content: a time in the future, where a clock was set back, would make an input fail this job for good.
        errata="docs/fidelity.md",
        errata_digest=content("docs/fidelity.md"),
    message:
        "Writing the report"
    shell:
        "python -m dprepro report --spec {params.job:q} --results {params.results:q} --errata {params.errata}"
        " --out {output:q} > {log:q} 2>&1"


rule report:
    input:
        rules.report_page.output,
        rules.report_page.input.results,
        rules.privacy.input,
        upstream(*EXPERIMENTS),
    localrule: True
