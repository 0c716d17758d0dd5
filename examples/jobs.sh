# Sourced by steps.sh: on which machines and GPUs training runs, and how many runs at a time (--jobs).

. "$(dirname -- "${BASH_SOURCE[0]}")/options.sh"

nodes=1 node_rank=0 # see find_nodes

# find_nodes: which of how many machines this is. Sets $nodes, $node_rank, $host and $port from the options --nodes,
# --node-rank and --rendezvous, or from Slurm's variables. The first machine, rank 0, goes through all steps; the others
# only take part in the training.
find_nodes() {
    if [ -z "$nodes" ] && [ "${SLURM_STEP_NUM_TASKS:-1}" != 1 ]; then
        [ "$SLURM_STEP_NUM_TASKS" = "${SLURM_STEP_NUM_NODES:-}" ] ||
            fail "srun starts $SLURM_STEP_NUM_TASKS tasks; start one per machine: srun --ntasks-per-node 1"
        nodes=$SLURM_STEP_NUM_NODES node_rank=${node_rank:-${SLURM_NODEID:-}}
        if [ -z "$rendezvous" ]; then
            host=$(scontrol show hostnames "$SLURM_STEP_NODELIST") || fail "scontrol failed; give --rendezvous HOST:PORT"
            rendezvous=${host%%$'\n'*}:$((20000 + SLURM_JOB_ID % 10000))
        fi
    fi
    nodes=${nodes:-1}
    if [ "$nodes" = 1 ]; then
        [ -z "$node_rank$rendezvous" ] || fail "--node-rank, --rendezvous: only with --nodes 2 or more"
        node_rank=0
        return
    fi
    [[ $node_rank =~ ^(0|[1-9][0-9]{0,5})$ && $node_rank -lt $nodes ]] ||
        fail "--node-rank ${node_rank:-is missing}: give this machine's number, from 0 to $((nodes - 1))"
    [[ $rendezvous =~ ^(.+):([1-9][0-9]{0,4})$ && ${BASH_REMATCH[2]} -le 65000 ]] ||
        fail "--rendezvous ${rendezvous:-is missing}: give HOST:PORT, an address of the machine with --node-rank 0"
    host=${BASH_REMATCH[1]} port=${BASH_REMATCH[2]}
    [ "$node_rank" = 0 ] || todo=$(for step in $todo; do case $step in train | finetune) printf "%s " $step ;; esac; done)
}

# count_gpus: set $gpus. With --print, there are none without torch, and scripts that are called do not count again.
count_gpus() {
    local count='import torch; print(torch.cuda.device_count())'
    if [ $printing = no ]; then
        gpus=$(python -c "$count")
        return
    fi
    gpus=${FB_FAIRSEQ_GPUS:-$("${FB_FAIRSEQ_VENV:-$repository/.venv}/bin/python" -c "$count" 2>/dev/null || echo 0)}
    export FB_FAIRSEQ_GPUS=$gpus # for the scripts that are called
}

# find_devices: train with one process per GPU, or with one on the CPU. Sets $processes, the number on all machines, and
# $cpu to fairseq's option.
find_devices() {
    local where="processes, one per GPU"
    count_gpus
    cpu="" processes=$gpus
    if [ "$processes" = 0 ]; then cpu=--cpu processes=1 where="process on the CPU"; fi
    [ "$nodes" = 1 ] || where+=", on each of $nodes machines"
    comment "On this machine, training runs as $processes $where."
    processes=$((processes * nodes))
}

# share_cores: divide the cores between $jobs parallel runs, unless OMP_NUM_THREADS is set.
share_cores() {
    if [ "$jobs" = 1 ] || [ $printing = yes ]; then return; fi
    export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(python -c "import os; print(max(1, os.cpu_count() // $jobs))")}
}

# start_run COMMAND…: run a command in the background, as soon as fewer than $jobs are running. Ctrl-C stops it, too.
start_run() {
    if [ $printing = yes ]; then
        "$@"
        return
    fi
    trap stop_runs INT TERM
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do sleep 1; done
    set -m # a process group of its own, so that all of its processes can be stopped
    "$@" </dev/null &
    set +m
}

# stop_runs: interrupt the runs in the background, wait for them, and exit.
stop_runs() {
    local run
    trap - INT TERM
    for run in $(jobs -rp); do kill -INT -- "-$run" 2>/dev/null || true; done
    wait
    exit 130
}

# start_job NAME COMMAND…: run a command for the run OUT/NAME: now or, with --jobs 2 or more, in the background. There
# its lines begin with its name, and if it fails, OUT/failed names it.
start_job() {
    if [ "$jobs" = 1 ] || [ $printing = yes ]; then "${@:2}"; else start_run run_in_background "$@"; fi
}

run_in_background() {
    local name=$1 line
    (
        trap '[ $? = 0 ] || echo "$name" >>"$out/failed"' EXIT
        "${@:2}"
    ) 2>&1 | (
        trap "" INT # an interrupted command may still say something
        while IFS= read -r line; do printf "[%s] %s\n" "$name" "$line"; done
    )
}

# prepare_jobs: check --jobs, and share the cores.
prepare_jobs() {
    if [ "$jobs" = 1 ] || [ $printing = yes ]; then return; fi
    [ "$processes" = 1 ] || fail "--jobs $jobs: each run uses all GPUs; leave it out"
    share_cores
    rm -f "$out/failed"
}

# wait_for_jobs: wait for what start_job has started, and stop if a run has failed.
wait_for_jobs() {
    if [ "$jobs" = 1 ] || [ $printing = yes ]; then return; fi
    wait_for_runs "$out/failed" "the lines with their names above"
}

# wait_for_runs FAILED LOGS: wait for all runs in the background; stop if the file FAILED names some. LOGS: where to
# look.
wait_for_runs() {
    wait
    [ ! -e "$1" ] || fail "some runs failed: $(paste -sd " " "$1"); see $2. Run the same command again to resume"
}
