#!/bin/sh
# Says of a job of Slurm in one word whether it is running, a success or failed. Snakemake asks often: no Python here.
job=$1

if ! state=$(squeue --noheader --states=all --format=%T --jobs="$job" 2> /dev/null); then
    problem=$(squeue --noheader --states=all --format=%T --jobs="$job" 2>&1 > /dev/null)
    case $problem in
        *"Invalid job id"*) state="" ;;
        *)
            echo "status.sh: Slurm does not answer for job $job ($problem); asking again." >&2
            echo running
            exit 0
            ;;
    esac
fi

if [ -z "$state" ]; then
    # After MinJobAge seconds only the accounting knows, where there is one.
    state=$(sacct --noheader --allocations --parsable2 --format=State --jobs="$job" 2> /dev/null | head -n 1)
fi

case $state in
    COMPLETED) echo success ;;
    # With a star: sacct says "CANCELLED by 0".
    BOOT_FAIL | CANCELLED* | DEADLINE | FAILED | NODE_FAIL | OUT_OF_MEMORY | PREEMPTED | REVOKED | TIMEOUT) echo failed ;;
    "")
        echo "status.sh: Slurm knows nothing of job $job; it counts as failed." >&2
        echo failed
        ;;
    *) echo running ;;
esac
