// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/runtime/cell"
)

func TestUsersOfAValueStartAfterItsServer(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("user", "Takes a", cell.Hook("use", hookA)),
		cell.Module("server", "Serves a", cell.Provide(newA), cell.Hook("serve", hookA)),
	},
		"server.hook-serve",
		"user.hook-use < server.hook-serve",
	)
}

func TestTiesAreInDeclarationOrder(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("z", "Is first", cell.Hook("two", hook), cell.Hook("one", hook)),
		cell.Module("a", "Is second", cell.Hook("x", hook), cell.Module("inner", "Is third", cell.Hook("x", hook))),
		cell.Hook("loose", hook),
	},
		"z.hook-two", "z.hook-one", "a.hook-x", "a.inner.hook-x", "the list of cells.hook-loose",
	)
}

func TestSeveralServersOfAValueStartInDeclarationOrder(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("user", "Takes a", cell.Hook("use", hookA)),
		cell.Module("server", "Serves a", cell.Provide(newA), cell.Hook("first", hookA), cell.Job("second", jobA), cell.Hook("aside", hook)),
	},
		"server.hook-first",
		"server.job-second < server.hook-first",
		"user.hook-use < server.hook-first, server.job-second",
		"server.hook-aside",
	)
}

func TestAValueWithoutServerIsAsReadyAsWhatItIsMadeOf(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("user", "Takes c", cell.Hook("use", hookC)),
		cell.Module("middle", "Makes b of a and c of b", cell.Provide(newBfromA), cell.Provide(newCfromB)),
		cell.Module("server", "Serves a", cell.Provide(newA), cell.Hook("serve", hookA)),
	},
		"server.hook-serve",
		"user.hook-use < server.hook-serve",
	)
}

func TestAServerStartsAfterWhatItsValueIsMadeOf(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("b", "Serves b", cell.Provide(newBfromA), cell.Hook("serve", hookB)),
		cell.Module("a", "Serves a", cell.Provide(newA), cell.Hook("serve", hookA)),
		cell.Module("user", "Takes b", cell.Hook("use", hookB)),
	},
		"a.hook-serve",
		"b.hook-serve < a.hook-serve",
		"user.hook-use < b.hook-serve",
	)
}

func TestAHookThatTakesAForeignValueDoesNotServeIt(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("a", "Makes a", cell.Provide(newA)),
		cell.Module("one", "Takes a", cell.Hook("use", hookA)),
		cell.Module("two", "Takes a", cell.Hook("use", hookA)),
	},
		"one.hook-use", "two.hook-use",
	)
}

func TestTheServerOfADecoratedValue(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("user", "Takes a", cell.Hook("use", hookA)),
		cell.Module("server", "Serves a", cell.Provide(newA), cell.Hook("serve", hookA)),
		cell.Decorate(decorateA),
		cell.Decorate(decorateA),
	},
		"server.hook-serve",
		"user.hook-use < server.hook-serve",
	)
}

func TestADecoratorsOtherNeedsCount(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("user", "Takes a", cell.Decorate(decorateAwithB), cell.Hook("use", hookA)),
		cell.Module("a", "Serves a", cell.Provide(newA), cell.Hook("serve", hookA)),
		cell.Module("b", "Serves b", cell.Provide(newB), cell.Hook("serve", hookB)),
	},
		"a.hook-serve",
		"b.hook-serve",
		"user.hook-use < a.hook-serve, b.hook-serve",
	)
}

type members struct {
	cell.In
	All []*a `group:"all"`
}

type member struct {
	cell.Out
	One *a `group:"all"`
}

func memberOfB(*b) member                    { return member{} }
func memberOfC(*c) member                    { return member{} }
func perModuleClient(cell.ModuleInfo, *b) *a { return nil }
func hookMembers(members) (h hookType)       { return h }
func hookOptional(optional) (h hookType)     { return h }

func TestTheUserOfAGroupStartsAfterTheServersOfAllMembers(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("user", "Takes the group", cell.Hook("use", hookMembers)),
		cell.Module("b", "Has a member", cell.Provide(newB, memberOfB), cell.Hook("serve", hookB)),
		cell.Module("c", "Has a member", cell.Provide(newC, memberOfC), cell.Hook("serve", hookC)),
	},
		"b.hook-serve", "c.hook-serve",
		"user.hook-use < b.hook-serve, c.hook-serve",
	)
}

// Two hooks that take their module's own client do not serve it.
func TestPerModuleValuesAreNotServed(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("k8s", "Makes a client for each module", cell.Provide(newB), cell.ProvidePerModule(perModuleClient), cell.Hook("dial", hookB)),
		cell.Module("m", "Has two hooks", cell.Hook("one", hookA), cell.Hook("two", hookA)),
	},
		"k8s.hook-dial",
		"m.hook-one < k8s.hook-dial",
		"m.hook-two < k8s.hook-dial",
	)
}

func TestJobsAddedWhileRunningStartLastInTheirModule(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("m", "Adds jobs", cell.Invoke(addJobs), cell.Hook("own", hook)),
		cell.Module("a", "Serves a", cell.Provide(newA), cell.Hook("serve", hookA)),
	},
		"m.hook-own",
		"a.hook-serve",
		"m.jobs < a.hook-serve, m.hook-own",
	)
}

func TestAfter(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("late", "Is late", cell.Hook("x", hook), cell.Hook("y", hook), cell.StartAfter("early", "it must")),
		cell.Module("early", "Is early", cell.Hook("x", hook), cell.Module("inner", "Is early, too", cell.Hook("x", hook))),
		cell.Module("aside", "Does not care", cell.Hook("x", hook)),
	},
		"early.hook-x", "early.inner.hook-x",
		"late.hook-x < early.hook-x (it must), early.inner.hook-x (it must)",
		"late.hook-y < early.hook-x (it must), early.inner.hook-x (it must)",
		"aside.hook-x",
	)
}

func TestAfterBetweenAModuleAndOneInside(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("m", "Is outside", cell.Module("in", "Is inside", cell.Hook("x", hook), cell.StartAfter("m", "last")), cell.Hook("x", hook), cell.Hook("y", hook)),
		cell.Module("n", "Is outside", cell.StartAfter("n.in", "first"), cell.Hook("x", hook), cell.Module("in", "Is inside", cell.Hook("x", hook))),
	},
		"m.hook-x", "m.hook-y", "m.in.hook-x < m.hook-x (last), m.hook-y (last)",
		"n.in.hook-x", "n.hook-x < n.in.hook-x (first)",
	)
}

func TestAfterADisabledModule(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Config(flags{}),
		cell.Module("late", "Is late", cell.Hook("x", hook), cell.StartAfter("early", "it must")),
		cell.Module("early", "Is off", cell.EnabledBy(on), cell.Hook("x", hook)),
	},
		"late.hook-x",
	)
}

func TestAfterAModuleThatAnEmbedderChanged(t *testing.T) {
	list := cell.Set(
		cell.Module("late", "Is late", cell.Hook("x", hook), cell.StartAfter("early", "it must")),
		cell.Module("later", "Is later", cell.Hook("x", hook), cell.StartAfter("early.inner", "it must")),
		cell.Module("early", "Is early", cell.Hook("x", hook), cell.Module("inner", "Is inside", cell.Hook("x", hook))),
	)
	wantSteps(t, []cell.Cell{list.Without("early")}, "late.hook-x", "later.hook-x")
	wantSteps(t, []cell.Cell{list.Replace("early", cell.Module("mine", "Is mine", cell.Hook("x", hook)))},
		"mine.hook-x", "late.hook-x < mine.hook-x (it must)", "later.hook-x < mine.hook-x (it must)")
	twice := list.Replace("early", cell.Module("mine", "Is mine")).Replace("mine", cell.Module("yours", "Is yours", cell.Hook("x", hook)))
	wantSteps(t, []cell.Cell{twice},
		"yours.hook-x", "late.hook-x < yours.hook-x (it must)", "later.hook-x < yours.hook-x (it must)")
}

func TestFirst(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("other", "Is not first", cell.Hook("x", hook)),
		cell.Module("crds", "Is first", cell.StartFirst("others need them"), cell.Hook("install", hookA), cell.Hook("wait", hook)),
		cell.Module("client", "Is needed by the first", cell.Provide(newA), cell.Hook("dial", hookA)),
	},
		"crds.hook-wait",
		"client.hook-dial",
		"crds.hook-install < client.hook-dial",
		"other.hook-x < crds.hook-install (others need them), crds.hook-wait (others need them)",
	)
}

func TestFirstYieldsToAfter(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("other", "Is not first", cell.Hook("x", hook)),
		cell.Module("crds", "Is first", cell.StartFirst("others need them"), cell.StartAfter("gate", "writes pass it"), cell.Hook("install", hook)),
		cell.Module("gate", "Is even earlier", cell.Hook("open", hook)),
	},
		"gate.hook-open",
		"crds.hook-install < gate.hook-open (writes pass it)",
		"other.hook-x < crds.hook-install (others need them)",
	)
}

func TestTwoFirsts(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Module("other", "Is not first", cell.Hook("x", hook)),
		cell.Module("one", "Is first", cell.StartFirst("one"), cell.Hook("x", hook)),
		cell.Module("two", "Is first, too", cell.StartFirst("two"), cell.Hook("x", hook)),
	},
		"one.hook-x",
		"two.hook-x < one.hook-x (one)",
		"other.hook-x < one.hook-x (one), two.hook-x (two)",
	)
}

func TestTermsHaveOrdersOfTheirOwn(t *testing.T) {
	p := fine(t,
		cell.Module("leader", "Enters", cell.Hook("elect", elect)),
		cell.Term("leader",
			cell.Module("user", "Takes a", cell.Hook("use", hookA)),
			cell.Module("server", "Serves a of b", cell.Provide(func(*b) *a { return nil }), cell.Hook("serve", hookA))),
		cell.Module("b", "Serves b", cell.Provide(newB), cell.Hook("serve", hookB)),
		cell.Module("aside", "Is not used in the term", cell.Provide(newC), cell.Hook("serve", hookC)),
	)
	// The term is entered after what its cells use in the process has started,
	// and so left before it stops.
	if diff := cmp.Diff([]string{"b.hook-serve", "leader.hook-elect < b.hook-serve", "aside.hook-serve"}, steps(t, p, 0)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"server.hook-serve", "user.hook-use < server.hook-serve"}, steps(t, p, 1)); diff != "" {
		t.Error(diff)
	}
}

func TestWhatStartsAfterTheOneWhoEntersCannotStartBefore(t *testing.T) {
	p := fine(t,
		cell.Module("leader", "Enters and tells", cell.Provide(newA), cell.Hook("elect", func(leader, *a) (h hookType) { return h })),
		cell.Module("api", "Shows who leads, and takes handlers", cell.Provide(newBfromA), cell.Hook("serve", hookB)),
		cell.Term("leader", cell.Module("duty", "Has a handler", cell.Hook("register", hookB))),
	)
	if diff := cmp.Diff([]string{"leader.hook-elect", "api.hook-serve < leader.hook-elect"}, steps(t, p, 0)); diff != "" {
		t.Error(diff)
	}
}

func TestUnreachedAndDisabledHaveNoSteps(t *testing.T) {
	wantSteps(t, []cell.Cell{
		cell.Config(flags{}),
		cell.Module("off", "Is off", cell.EnabledBy(on), cell.Provide(newA), cell.Hook("serve", hookA), cell.Invoke(addJobs)),
		cell.Module("m", "Is on", cell.Hook("x", hook)),
	},
		"m.hook-x",
	)
}
