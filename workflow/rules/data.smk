rule dataset:
    output:
        npz=f"{RESULTS}/datasets/{{dataset}}.npz",
        json=f"{RESULTS}/datasets/{{dataset}}.json",
    log:
        f"{RESULTS}/logs/datasets/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/datasets/{{dataset}}.tsv"
    localrule: True
    conda:
        "../../envs/dprepro.yaml"
    params:
        spec=lambda wildcards: shlex.quote(json.dumps(DATASETS[wildcards.dataset], sort_keys=True)),
        code=lambda wildcards: code("dataset", dataset=DATASETS[wildcards.dataset]["name"]),
    message:
        "Preparing dataset {wildcards.dataset}"
    shell:
        "python -m dprepro dataset --spec {params.spec} --out {output.npz:q} > {log:q} 2>&1"


rule optimum:
    input:
        npz=f"{RESULTS}/datasets/{{dataset}}.npz",
        json=f"{RESULTS}/datasets/{{dataset}}.json",
    output:
        f"{RESULTS}/optima/{{experiment}}/{{dataset}}.npz",
    log:
        f"{RESULTS}/logs/optima/{{experiment}}/{{dataset}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/optima/{{experiment}}/{{dataset}}.tsv"
    conda:
        "../../envs/dprepro.yaml"
    threads: 1
    resources:
        runtime=growing(20),
        mem_mb=growing(2000),
        gpu=0,
    params:
        spec=lambda wildcards: shlex.quote(
            json.dumps(EXPERIMENTS[wildcards.experiment].problem(wildcards.dataset), sort_keys=True)
        ),
        code=lambda wildcards: code("optimum", loss=EXPERIMENTS[wildcards.experiment].spec["loss"]),
    message:
        "Finding the non-private optimum of {wildcards.experiment} on {wildcards.dataset}"
    shell:
        "python -m dprepro optimum --spec {params.spec} --data {input.npz:q} --out {output:q} > {log:q} 2>&1"
