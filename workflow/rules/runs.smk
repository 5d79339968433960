rule certify:
    input:
        facts=job_dataset("json"),
    output:
        plan=f"{RESULTS}/plans/{{experiment}}/{{job}}.json",
        certificate=f"{RESULTS}/plans/{{experiment}}/{{job}}.certificate.json",
    log:
        f"{RESULTS}/logs/plans/{{experiment}}/{{job}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/plans/{{experiment}}/{{job}}.tsv"
    conda:
        "../../envs/dprepro.yaml"
    threads: 1
    resources:
        runtime=growing(5),
        mem_mb=growing(1000),
        gpu=0,
    params:
        job=job_file,
        spec=lambda wildcards: of_value(jsonable(JOBS[wildcards.experiment, wildcards.job].spec)),
        code=job_code("certify"),
    message:
        "Certifying {wildcards.experiment}: {wildcards.job}"
    shell:
        "python -m dprepro certify --spec {params.job:q} --facts {input.facts:q} --out {output.plan:q} > {log:q} 2>&1"


rule run:
    input:
        plan=f"{RESULTS}/plans/{{experiment}}/{{job}}.json",
        data=job_dataset("npz"),
    output:
        npz=f"{RESULTS}/runs/{{experiment}}/{{job}}.npz",
        json=f"{RESULTS}/runs/{{experiment}}/{{job}}.json",
    log:
        f"{RESULTS}/logs/runs/{{experiment}}/{{job}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/runs/{{experiment}}/{{job}}.tsv"
    conda:
        "../../envs/dprepro.yaml"
    threads: 1
    resources:
        runtime=run_minutes,
        mem_mb=growing(2000),
        gpu=GPUS,
    params:
        code=job_code("run"),
    message:
        "Running {wildcards.experiment}: {wildcards.job}"
    shell:
        "python -m dprepro run --plan {input.plan:q} --data {input.data:q} --out {output.npz:q}"
        " --sources {params.code} > {log:q} 2>&1"


rule collect:
    input:
        runs=lambda wildcards: run_files(wildcards.experiment, "npz"),
        facts=lambda wildcards: run_files(wildcards.experiment, "json"),
        optima=lambda wildcards: optimum_files(wildcards.experiment),
    output:
        f"{RESULTS}/data/{{experiment}}.parquet",
    log:
        f"{RESULTS}/logs/data/{{experiment}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/data/{{experiment}}.tsv"
    wildcard_constraints:
        experiment=names_of("curves"),
    localrule: True
    conda:
        "../../envs/dprepro.yaml"
    params:
        code=code("collect"),
    message:
        "Collecting the runs of {wildcards.experiment}"
    shell:
        "python -m dprepro collect --runs {input.runs:q} --optima {input.optima:q} --out {output:q} > {log:q} 2>&1"
