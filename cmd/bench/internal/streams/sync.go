// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streams

import (
	"context"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
	"github.com/skep-operator/skep/cmd/bench/internal/usage"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/streamtest"
)

const (
	syncCPU      = "CPU"
	syncWall     = "wall"
	syncResident = "resident at most"
	syncFixed    = "resident before the first pod"
	syncLive     = "live heap at most"
	syncKept     = "heap kept per pod"
	syncAllocs   = "allocations per pod"
)

// Sync is the contest of the initial sync of so many pods.
func Sync(pods int) contest.Contest {
	list := func(run runner) runner {
		return func(ctx context.Context, url string) (contest.Figures, error) {
			if err := os.Setenv("KUBE_FEATURE_WatchListClient", "false"); err != nil {
				return nil, err
			}
			return run(ctx, url)
		}
	}
	c := contest.Contest{
		Name:  "sync",
		Title: fmt.Sprintf("Initial sync of %d pods", pods),
		Note: "Pods of 5.6 KB in protobuf, streamed by a server in a process of its own; an index by node. All take initial events (WatchList), " +
			"except for \"list\". \"Trimmed\" has a transform that keeps the fields which ours keeps, on the full type.",
		Pods: pods,
		Measures: []contest.Measure{
			{Name: syncKept, Unit: "B"},
			{Name: syncCPU, Unit: "s"},
			{Name: syncResident, Unit: "MB"},
			{Name: syncFixed, Unit: "MB"},
			{Name: syncLive, Unit: "MB"},
			{Name: syncWall, Unit: "s"},
			{Name: syncAllocs},
		},
		Contestants: []contest.Contestant{
			{Name: "informer", Run: syncOf(pods, informerSync(nil))},
			{Name: "informer, list", Run: list(syncOf(pods, informerSync(nil)))},
			{Name: "informer, trimmed", Run: syncOf(pods, informerSync(trim))},
			{Name: "controller-runtime", Run: syncOf(pods, cacheSync(nil))},
			{Name: "controller-runtime, trimmed", Run: syncOf(pods, cacheSync(trim))},
			{Name: "ours, list", Run: list(syncOf(pods, ourSync))},
			{Name: "ours", Judged: true, Run: syncOf(pods, ourSync)},
		},
	}
	if pods == BudgetPods { // the fixed part of a process does not scale
		c.Measures[0].Budget.AtMost, c.Measures[1].Budget.AtMost, c.Measures[2].Budget.AtMost = 400, 1.5, 90
	}
	return c
}

// BudgetPods is the number of pods that the budgets of the initial sync are for.
const BudgetPods = 100_000

type runner = func(context.Context, string) (contest.Figures, error)

// syncer brings the pods of a server into memory and returns what holds them.
type syncer func(ctx context.Context, url string) (holder, error)

// holder keeps pods. Its length is asked for when all is measured.
type holder interface {
	count(context.Context) (int, error)
}

func syncOf(pods int, sync syncer) runner {
	return func(ctx context.Context, url string) (contest.Figures, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		before := usage.Heap()
		fixed, _, err := usage.Resident()
		if err != nil {
			return nil, err
		}
		begin, err := usage.Now()
		if err != nil {
			return nil, err
		}
		stop := usage.WatchHeap()
		kept, err := sync(ctx, url)
		live := stop()
		if err != nil {
			return nil, err
		}
		total, err := begin.Since()
		if err != nil {
			return nil, err
		}
		_, resident, err := usage.Resident()
		if err != nil {
			return nil, err
		}
		n := float64(pods)
		figures := contest.Figures{
			syncCPU: total.CPU, syncWall: total.Wall, syncResident: resident / 1e6, syncFixed: fixed / 1e6, syncLive: live / 1e6,
			syncAllocs: total.Allocations / n, syncKept: (usage.Heap() - before) / n,
		}
		if got, err := kept.count(ctx); err != nil || got != pods {
			return nil, fmt.Errorf("%d pods of %d are kept: %w", got, pods, err)
		}
		return figures, nil
	}
}

type ourPods struct {
	*stream.Store[streamtest.BudgetPod]
}

func (p ourPods) count(context.Context) (int, error) { return p.Len(), nil }

func ourSync(ctx context.Context, url string) (holder, error) {
	s, err := newStream(url)
	if err != nil {
		return nil, err
	}
	store, err := storeByNode(ctx, s)
	return ourPods{store}, err
}

type informerPods struct{ cache.SharedIndexInformer }

func (p informerPods) count(context.Context) (int, error) { return len(p.GetStore().ListKeys()), nil }

func informerSync(transform cache.TransformFunc) syncer {
	return func(ctx context.Context, url string) (holder, error) {
		informer, err := newInformer(url, transform)
		if err != nil {
			return nil, err
		}
		return informerPods{informer}, start(ctx, informer)
	}
}

type cachePods struct{ crcache.Cache }

func (p cachePods) count(ctx context.Context) (int, error) {
	var pods corev1.PodList
	err := p.List(ctx, &pods, client.UnsafeDisableDeepCopy)
	return len(pods.Items), err
}

// cacheSync is controller-runtime's cache, which takes protobuf by itself for
// the types of the API server. It is spared discovery.
func cacheSync(transform cache.TransformFunc) syncer {
	return func(ctx context.Context, url string) (holder, error) {
		log.SetLogger(logr.Discard())
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
		c, err := crcache.New(&rest.Config{Host: url, QPS: -1}, crcache.Options{Scheme: scheme.Scheme, Mapper: mapper, DefaultTransform: transform})
		if err != nil {
			return nil, err
		}
		if err := c.IndexField(ctx, &corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
			return []string{o.(*corev1.Pod).Spec.NodeName}
		}); err != nil {
			return nil, err
		}
		go func() { _ = c.Start(ctx) }() // ends with the context
		if !c.WaitForCacheSync(ctx) {
			return nil, errNotSynced
		}
		return cachePods{c}, nil
	}
}
