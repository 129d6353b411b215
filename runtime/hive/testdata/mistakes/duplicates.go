// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mistakes

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive/testdata/mistakes/kvstore"
)

func newLogger() *slog.Logger { return slog.Default() }

func newTwice() (*kvstore.Client, *kvstore.Client) { return nil, nil }

type interval struct{ SyncInterval int }

func (i interval) Flags(fs *pflag.FlagSet) { fs.Int("sync-interval", i.SyncInterval, "Pause") }

type otherInterval struct{ SyncInterval int }

func (i otherInterval) Flags(fs *pflag.FlagSet) { fs.Int("sync-interval", i.SyncInterval, "Pause") }

type short struct{ Verbose bool }

func (s short) Flags(fs *pflag.FlagSet) { fs.BoolP("verbose", "D", s.Verbose, "Say more") }

type counters struct{ Beats prometheus.Counter }

func newCounters() *counters {
	return &counters{prometheus.NewCounter(prometheus.CounterOpts{Name: "beats_total"})}
}

type otherCounters struct{ Beats prometheus.Counter }

func newOtherCounters() *otherCounters {
	return &otherCounters{prometheus.NewCounter(prometheus.CounterOpts{Name: "beats_total"})}
}

type emptyCounters struct{ Beats, Misses prometheus.Counter }

func newEmptyCounters() *emptyCounters { return &emptyCounters{} }

var duplicates = []Case{
	{Name: "duplicate-type", Cells: cell.Set(
		cell.Module("kvstore", "Provides it", cell.Provide(kvstore.New)),
		cell.Module("etcd", "Provides it, too", cell.Provide(kvstore.New), cell.Hook("dial", serveClient)))},
	{Name: "duplicate-type-in-a-term", Cells: cell.Set(entering, cell.Term("leader", ofTerm),
		cell.Module("etcd", "Provides it in the process", cell.Provide(kvstore.New)))},
	{Name: "duplicate-type-of-the-hive", Cells: cell.Module("log", "Has a logger of its own", cell.Provide(newLogger))},
	{Name: "duplicate-type-in-one-constructor", Cells: cell.Module("kvstore", "Returns it twice", cell.Provide(newTwice))},
	{Name: "duplicate-flag", Cells: cell.Set(
		cell.Module("kvstore", "Has a flag", cell.Config(interval{1})),
		cell.Module("heartbeat", "Has it, too", cell.Config(otherInterval{2})))},
	{Name: "duplicate-shorthand", Cells: cell.Module("heartbeat", "Has a shorthand of the hive", cell.Config(short{}))},
	{Name: "duplicate-module", Cells: cell.Set(
		cell.Module("kvstore", "Is there"), cell.Module("heartbeat", "Is between"), cell.Module("kvstore", "Is there again"))},
	{Name: "duplicate-metric", Cells: cell.Set(
		cell.Module("heartbeat", "Counts", cell.Metrics(newCounters), cell.Invoke(func(*counters) {})),
		cell.Module("kvstore", "Counts, too", cell.Metrics(newOtherCounters), cell.Invoke(func(*otherCounters) {})))},
	{Name: "empty-metrics", Cells: cell.Module("heartbeat", "Forgot to make them",
		cell.Metrics(newEmptyCounters), cell.Invoke(func(*emptyCounters) {}))},
}
