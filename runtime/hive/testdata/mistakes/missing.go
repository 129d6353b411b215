// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mistakes

import (
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive/testdata/mistakes/kvstore"
	other "github.com/skep-operator/skep/runtime/hive/testdata/mistakes/other/kvstore"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

type (
	heart struct{}
	beat  struct{}
	link1 struct{}
	link2 struct{}
	link3 struct{}
	link4 struct{}
	link5 struct{}
	link6 struct{}
	link7 struct{}
	link8 struct{}
	link9 struct{}
)

func newHeart(*kvstore.Absent) *heart { return nil }
func newBeat(*heart) *beat            { return nil }
func serveBeat(*beat) lifecycle.Hook  { return none() }

func newLink1(*kvstore.Absent) link1  { return link1{} }
func newLink2(link1) link2            { return link2{} }
func newLink3(link2) link3            { return link3{} }
func newLink4(link3) link4            { return link4{} }
func newLink5(link4) link5            { return link5{} }
func newLink6(link5) link6            { return link6{} }
func newLink7(link6) link7            { return link7{} }
func newLink8(link7) link8            { return link8{} }
func newLink9(link8) link9            { return link9{} }
func serveLink9(link9) lifecycle.Hook { return none() }

func serveClient(*kvstore.Client) lifecycle.Hook      { return none() }
func serveValue(kvstore.Client) lifecycle.Hook        { return none() }
func serveGetter(kvstore.Getter) lifecycle.Hook       { return none() }
func serveAbsent(*kvstore.Absent) lifecycle.Hook      { return none() }
func serveLogger(slog.Logger) lifecycle.Hook          { return none() }
func serveAbsentToo(*kvstore.Absent) lifecycle.Hook   { return none() }
func serveAbsentThree(*kvstore.Absent) lifecycle.Hook { return none() }

type named struct {
	cell.In
	Client *kvstore.Client `name:"etcd"`
}

func serveNamed(named) lifecycle.Hook { return none() }

type namedOut struct {
	cell.Out
	Client *kvstore.Client `name:"ectd"`
}

func newNamed() namedOut { return namedOut{} }

type switches struct{ EnableKvstore bool }

func (s switches) Flags(fs *pflag.FlagSet) {
	fs.Bool("enable-kvstore", s.EnableKvstore, "Use the kvstore")
}

var inUse = cell.When("the kvstore is in use", []string{"enable-kvstore"}, func(s switches) bool { return s.EnableKvstore })

type optional struct {
	cell.In
	Beat *beat `optional:"true"`
}

func serveOptional(optional) lifecycle.Hook { return none() }

var missing = []Case{
	{Name: "missing-type", Cells: cell.Module("heartbeat", "Beats",
		cell.Provide(newHeart, newBeat), cell.Hook("beat", serveBeat))},
	{Name: "missing-type-long-chain", Cells: cell.Module("chain", "Is long",
		cell.Provide(newLink1, newLink2, newLink3, newLink4, newLink5, newLink6, newLink7, newLink8, newLink9),
		cell.Hook("end", serveLink9))},
	{Name: "missing-type-of-many", Cells: cell.Set(
		cell.Module("a", "Asks", cell.Hook("a", serveAbsent)),
		cell.Module("b", "Asks, too", cell.Hook("b", serveAbsentToo)),
		cell.Module("c", "Asks as well", cell.Hook("c", serveAbsentThree)))},
	{Name: "near-miss-pointer", Cells: cell.Set(
		cell.Module("kvstore", "Provides the value", cell.Provide(kvstore.NewValue)),
		cell.Module("heartbeat", "Asks for the pointer", cell.Hook("beat", serveClient)))},
	{Name: "near-miss-value", Cells: cell.Set(
		cell.Module("kvstore", "Provides the pointer", cell.Provide(kvstore.New)),
		cell.Module("heartbeat", "Asks for the value", cell.Hook("beat", serveValue)))},
	{Name: "near-miss-implementation", Cells: cell.Set(
		cell.Module("kvstore", "Provides what has the methods", cell.Provide(kvstore.New)),
		cell.Module("heartbeat", "Asks for an interface", cell.Hook("beat", serveGetter)))},
	{Name: "near-miss-interface", Cells: cell.Set(
		cell.Module("kvstore", "Provides an interface", cell.Provide(kvstore.NewGetter)),
		cell.Module("heartbeat", "Asks for what is behind it", cell.Hook("beat", serveClient)))},
	{Name: "near-miss-other-package", Cells: cell.Set(
		cell.Module("kvstore", "Provides a type", cell.Provide(kvstore.New)),
		cell.Module("heartbeat", "Asks for one of the same name", cell.Hook("beat", serveOwn)))},
	{Name: "near-miss-other-package-of-the-same-name", Cells: cell.Set(
		cell.Module("kvstore", "Provides a type", cell.Provide(other.New)),
		cell.Module("heartbeat", "Asks for one that reads the same", cell.Hook("beat", serveAbsent)))},
	{Name: "near-miss-name", Cells: cell.Set(
		cell.Module("kvstore", "Provides it by another name", cell.Provide(newNamed)),
		cell.Module("heartbeat", "Asks for a name", cell.Hook("beat", serveNamed)))},
	{Name: "near-miss-without-name", Cells: cell.Set(
		cell.Module("kvstore", "Provides it by name", cell.Provide(newNamed)),
		cell.Module("heartbeat", "Asks for none", cell.Hook("beat", serveClient)))},
	{Name: "near-miss-of-the-hive", Cells: cell.Module("heartbeat", "Asks for a value", cell.Hook("beat", serveLogger))},
	{Name: "disabled-provider", Cells: cell.Set(
		cell.Module("kvstore", "Is off", cell.Config(switches{}), cell.EnabledBy(inUse), cell.Provide(kvstore.New)),
		cell.Module("heartbeat", "Asks all the same", cell.Hook("beat", serveClient)))},
	{Name: "optional-of-a-broken-provider", Cells: cell.Module("heartbeat", "Could do without",
		cell.Provide(newHeart, newBeat), cell.Hook("beat", serveOptional))},
	{Name: "two-mistakes", Cells: cell.Set(
		cell.Module("heartbeat", "Asks for what nobody provides", cell.Hook("beat", serveAbsent)),
		cell.Module("kvstore", "Provides the value", cell.Provide(kvstore.NewValue)),
		cell.Module("identity", "Asks for the pointer", cell.Hook("watch", serveClient)))},
}

// Client has the name of a type of another package.
type Client struct{}

func serveOwn(*Client) lifecycle.Hook { return none() }
