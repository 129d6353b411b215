// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// KVBench measures the duties that write to etcd. Numbers are those of objects or keys.
type KVBench struct {
	Bench
	Services, Nodes, Identities int

	OutageKeys int
	OutageOf   string        // nodes or services
	Churn      int           // objects that change while etcd is down
	Down       time.Duration // how long that is

	MeshServices, Clusters int // of a mesh
	Derived                int // Services of exports

	QPS  int      // etcd.qps of the operator
	Args []string // more of the operator's
}

// bare is the physical limit: etcd's own client, with nothing around it.
const bare = "etcd's own client"

var kvContestants = []contest.Contestant{{Name: bare}, {Name: ours, Judged: true}}

// record adds figures of a contestant.
type record func(who string, f contest.Figures)

type kvScenario struct {
	contest contest.Contest
	run     func(context.Context, record) error
}

func (b KVBench) scenarios() []kvScenario {
	return []kvScenario{
		b.exportScenario(b.servicesExport("services", b.Services, 1)),
		b.exportScenario(b.servicesExport("backends", min(b.Services, 2000), 20)),
		b.exportScenario(b.nodesExport()),
		{b.collectContest(), b.collect},
		{b.outageContest(), b.outage},
		{b.meshContest(), b.mesh},
		{b.derivedContest(), b.derived},
	}
}

func (b KVBench) exportScenario(e export) kvScenario {
	return kvScenario{b.exportContest(e), func(ctx context.Context, r record) error { return b.export(ctx, e, r) }}
}

// KVScenarios are the names of what can be measured.
func KVScenarios() (names []string) {
	for _, s := range (KVBench{}).scenarios() {
		names = append(names, s.contest.Name)
	}
	return names
}

// Check says what is wrong with what is asked for.
func (b KVBench) Check(only []string) error {
	for _, name := range only {
		if !slices.Contains(KVScenarios(), name) {
			return fmt.Errorf("there is no scenario %q: use %s", name, strings.Join(KVScenarios(), ", "))
		}
	}
	switch {
	case b.OutageOf != "nodes" && b.OutageOf != "services":
		return fmt.Errorf("keys are made of nodes or services, not of %q", b.OutageOf)
	case b.Identities > 65_000:
		return fmt.Errorf("%d identities: a cluster has room for 65,000", b.Identities)
	case b.Clusters < 1 || b.Clusters > 10 || b.MeshServices < 1 || b.MeshServices > 2000:
		return fmt.Errorf("%d remote clusters with %d services: at most 10 with 2,000 each have addresses", b.Clusters, b.MeshServices)
	case b.Derived < 1 || b.Derived > 10_000:
		return fmt.Errorf("%d derived services: 10,000 at most have addresses", b.Derived)
	case b.Rounds < 1 || b.Services < 1 || b.Nodes < 1 || b.Identities < 2 || b.OutageKeys < 1 || b.Churn > b.OutageKeys:
		return fmt.Errorf("numbers are at least 1, and no more objects change than there are")
	}
	return nil
}

// Run measures the named scenarios, or all. On an error the results so far come with it.
func (b KVBench) Run(ctx context.Context, only ...string) (results []contest.Result, err error) {
	for _, s := range b.scenarios() {
		if len(only) > 0 && !slices.Contains(only, s.contest.Name) {
			continue
		}
		result := contest.Result{Contest: s.contest, Runs: map[string][]contest.Figures{}}
		err := s.run(ctx, func(who string, f contest.Figures) { result.Runs[who] = append(result.Runs[who], f) })
		if err == nil {
			err = complete(result)
		}
		results = append(results, result)
		if err != nil {
			return results, fmt.Errorf("%s: %w", s.contest.Name, err)
		}
	}
	return results, nil
}

// onStore does something with an empty control plane and an etcd of its own.
func (b KVBench) onStore(ctx context.Context, members int, do func(context.Context, *plane, *store) error) error {
	return b.onPlane(ctx, nil, func(ctx context.Context, p *plane) error {
		s, err := startStore(ctx, members)
		if err != nil {
			return err
		}
		defer s.stop()
		return do(ctx, p, s)
	})
}

// keysOf is the cluster whose keys are measured.
const keysOf = "cluster1"

// start runs an operator that uses the etcd.
func (b KVBench) start(ctx context.Context, p *plane, s *store, args ...string) (*operator, error) {
	opt := fmt.Sprintf("etcd.qps=%d", b.QPS)
	config, err := s.clientFile()
	if err != nil {
		return nil, err
	}
	return b.run(ctx, p, "operator-0", slices.Concat(raised, []string{
		"--ipam=kubernetes", "--cluster-name=" + keysOf, "--cluster-id=1", "--identity-allocation-mode=crd",
		"--kvstore=etcd", "--kvstore-opt=etcd.config=" + config + "," + opt,
		"--synchronize-k8s-services=false", "--synchronize-k8s-nodes=false",
	}, args, b.Args)...)
}

// watched is how long an operator that has nothing to do is watched.
const watched = 15 * time.Second

// changesAtRestart stops an operator, starts another, and counts the changes of keys until that has been quiet.
func (b KVBench) changesAtRestart(ctx context.Context, p *plane, s *store, o *operator, t *tracker, args ...string) (float64, *operator, error) {
	o.end(syscall.SIGTERM)
	before := t.count()
	next, err := b.start(ctx, p, s, args...)
	if err != nil {
		return 0, nil, err
	}
	if err := next.waits(ctx, true); err != nil {
		return 0, next, err
	}
	err = sleep(ctx, watched)
	return float64(t.count() - before), next, err
}
