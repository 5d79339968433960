rule optima:
    output:
        f"{RESULTS}/optima/{{experiment}}/{{optima}}.json",
    log:
        f"{RESULTS}/logs/optima/{{experiment}}/{{optima}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/optima/{{experiment}}/{{optima}}.tsv"
    wildcard_constraints:
        experiment=names_of("sweeps"),
    conda:
        "../../envs/dprepro.yaml"
    threads: 1
    resources:
        runtime=growing(20),
        mem_mb=growing(2000),
        gpu=0,
    params:
        job=f"{RESULTS}/jobs/optima/{{experiment}}/{{optima}}.json",
        spec=lambda wildcards: of_value(jsonable(OPTIMA[wildcards.experiment, wildcards.optima])),
        code=optima_code,
    message:
        "Finding the minima of {wildcards.experiment}: {wildcards.optima}"
    shell:
        "python -m dprepro optima --spec {params.job:q} --out {output:q} > {log:q} 2>&1"


rule sweep:
    input:
        optima=sweep_optima,
    output:
        npz=f"{RESULTS}/sweeps/{{experiment}}/{{job}}.npz",
        json=f"{RESULTS}/sweeps/{{experiment}}/{{job}}.json",
    log:
        f"{RESULTS}/logs/sweeps/{{experiment}}/{{job}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/sweeps/{{experiment}}/{{job}}.tsv"
    wildcard_constraints:
        experiment=names_of("sweeps"),
    conda:
        "../../envs/dprepro.yaml"
    threads: 1
    resources:
        runtime=growing(20),
        mem_mb=growing(2000),
        gpu=GPUS,
    params:
        job=job_file,
        spec=lambda wildcards: of_value(jsonable(sweep_of(wildcards).spec)),
        optima=lambda wildcards, input: shlex.join(["--optima", *input.optima]) if input.optima else "",
        code=sweep_code,
    message:
        "Sweeping {wildcards.experiment}: {wildcards.job}"
    shell:
        "python -m dprepro sweep --spec {params.job:q} {params.optima} --out {output.npz:q}"
        " --sources {params.code} > {log:q} 2>&1"


rule collect_sweeps:
    input:
        runs=lambda wildcards: sweep_files(wildcards.experiment, "npz"),
        facts=lambda wildcards: sweep_files(wildcards.experiment, "json"),
    output:
        f"{RESULTS}/data/{{experiment}}.parquet",
    log:
        f"{RESULTS}/logs/data/{{experiment}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/data/{{experiment}}.tsv"
    wildcard_constraints:
        experiment=names_of("sweeps"),
    localrule: True
    conda:
        "../../envs/dprepro.yaml"
    params:
        claims=lambda wildcards: shlex.quote(json.dumps(EXPERIMENTS[wildcards.experiment].claims(), sort_keys=True)),
        code=code("collect"),
    message:
        "Collecting the sweeps of {wildcards.experiment}"
    shell:
        "python -m dprepro collect-sweeps --runs {input.runs:q} --claims {params.claims} --out {output:q} > {log:q} 2>&1"


rule collect_parts:
    input:
        lambda wildcards: part_files(wildcards.experiment, lambda part: [f"{RESULTS}/data/{part}.parquet"]),
    output:
        f"{RESULTS}/data/{{experiment}}.parquet",
    log:
        f"{RESULTS}/logs/data/{{experiment}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/data/{{experiment}}.tsv"
    wildcard_constraints:
        experiment=names_of("parts"),
    localrule: True
    conda:
        "../../envs/dprepro.yaml"
    params:
        paper=lambda wildcards: shlex.quote(EXPERIMENTS[wildcards.experiment].spec["paper"]),
        title=lambda wildcards: shlex.quote(EXPERIMENTS[wildcards.experiment].spec["title"]),
        code=code("collect"),
    message:
        "Collecting the parts of {wildcards.experiment}"
    shell:
        "python -m dprepro collect-parts --data {input:q} --paper {params.paper} --title {params.title}"
        " --out {output:q} > {log:q} 2>&1"
