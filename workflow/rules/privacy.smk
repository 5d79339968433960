rule audit_algorithm:
    output:
        f"{RESULTS}/privacy/audits/{{algorithm}}.json",
    log:
        f"{RESULTS}/logs/privacy/audits/{{algorithm}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/privacy/audits/{{algorithm}}.tsv"
    conda:
        "../../envs/dprepro.yaml"
    threads: 1
    resources:
        runtime=growing(30),
        mem_mb=growing(2000),
        gpu=GPUS,
    params:
        job=f"{RESULTS}/jobs/audits/{{algorithm}}.json",
        spec=lambda wildcards: of_value(jsonable(AUDITS[wildcards.algorithm])),
        code=lambda wildcards: code("audit", algorithm=wildcards.algorithm),
    message:
        "Auditing {wildcards.algorithm}"
    shell:
        "python -m dprepro audit-stage --spec {params.job:q} --out {output:q} > {log:q} 2>&1"


rule privacy_tables:
    input:
        plans=[f"{RESULTS}/plans/{experiment}/{job}.json" for experiment, job in JOBS],
        sweeps=[f"{RESULTS}/sweeps/{experiment}/{job}.json" for experiment, job in SWEEPS],
        audits=expand(f"{RESULTS}/privacy/audits/{{algorithm}}.json", algorithm=AUDITS),
    output:
        certificates=report(
            f"{RESULTS}/privacy/certificates.csv",
            caption="../report/privacy.rst",
            category="Privacy",
            labels={"table": "certificates"},
        ),
        audit=report(
            f"{RESULTS}/privacy/audit.csv",
            caption="../report/privacy.rst",
            category="Privacy",
            labels={"table": "audit"},
        ),
        figures=expand(
            f"{RESULTS}/privacy/{{name}}.{{suffix}}",
            name=("certificates", "audit"),
            suffix=("md", "png", "pdf", "svg", "json"),
        ),
    log:
        f"{RESULTS}/logs/privacy/tables.log",
    benchmark:
        f"{RESULTS}/benchmarks/privacy/tables.tsv"
    localrule: True
    conda:
        "../../envs/dprepro.yaml"
    params:
        code=code("privacy"),
    message:
        "Writing the tables of certificates and audits"
    shell:
        "python -m dprepro privacy --plans {input.plans:q} {input.sweeps:q} --audits {input.audits:q} --out {output.certificates:q} > {log:q} 2>&1"


rule privacy:
    input:
        rules.privacy_tables.output,
        rules.privacy_tables.input,
    localrule: True


rule audit:
    input:
        f"{RESULTS}/privacy/audit.csv",
        rules.privacy_tables.input.audits,
    localrule: True
