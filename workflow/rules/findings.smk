# The names of these tables look like those of experiments.
ruleorder: paper_findings > table


rule findings:
    input:
        [findings_files(name) for name in EXPERIMENTS],
    localrule: True


rule paper_findings:
    output:
        csv=report(
            f"{RESULTS}/tables/{{paper}}_findings.csv",
            caption="../report/findings.rst",
            category="Findings",
            labels={"paper": "{paper}"},
        ),
        md=f"{RESULTS}/tables/{{paper}}_findings.md",
    log:
        f"{RESULTS}/logs/findings/{{paper}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/findings/{{paper}}.tsv"
    wildcard_constraints:
        paper="|".join(FINDINGS),
    conda:
        "../../envs/dprepro.yaml"
    params:
        # The findings run on this population.
        code=code("findings", dataset="population_valley"),
    message:
        "Holding the claims of {wildcards.paper} against what can be computed"
    shell:
        "python -m dprepro findings {wildcards.paper} --out {output.csv} > {log} 2>&1"
