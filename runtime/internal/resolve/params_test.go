// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package resolve_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/internal/resolve"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

type hookType = lifecycle.Hook

var (
	on    = cell.When("it is on", []string{"on"}, func(f flags) bool { return f.On })
	inner = cell.When("the inner one is on", []string{"inner"}, func(f flags) bool { return f.Inner })
)

type optional struct {
	cell.In
	A *a `optional:"true"`
}

func root(name string) cell.Cell                       { return cell.Hook(name, hookA) }
func otherA() *a                                       { return &a{"other"} }
func decorateB(x *a) *a                                { return x }
func scoped(s cell.ModuleInfo) *a                      { return &a{s.ID} }
func scopedWithJobs(cell.ModuleInfo, job.Group, *b) *a { return nil }
func decorateScoped(x *a, s cell.ModuleInfo) *a        { return x }

func TestPrivateValuesAreSeenInTheirModuleAndThoseInside(t *testing.T) {
	p := fine(t,
		cell.Provide(newA),
		cell.Module("m", "Has its own",
			cell.ProvidePrivate(otherA),
			cell.Hook("own", hookA),
			cell.Module("inner", "Is inside", cell.Hook("inner", hookA)),
			cell.Module("innermost", "Has its own again", cell.ProvidePrivate(newA), cell.Hook("innermost", hookA))),
		cell.Module("n", "Is outside", cell.Hook("other", hookA)),
	)
	wantSources(t, node(t, p, resolve.Hook, "own"), "m/resolve_test.otherA")
	wantSources(t, node(t, p, resolve.Hook, "inner"), "m/resolve_test.otherA")
	wantSources(t, node(t, p, resolve.Hook, "innermost"), "m.innermost/resolve_test.newA")
	wantSources(t, node(t, p, resolve.Hook, "other"), "the list of cells/resolve_test.newA")
}

func TestDecoratorsComposeInOrder(t *testing.T) {
	p := fine(t,
		cell.Module("a", "Provides", cell.Provide(newA), cell.Hook("own", hookA)),
		cell.Decorate(decorateA),
		cell.Decorate(decorateB),
		cell.Module("m", "Decorates again", cell.Decorate(decorateAwithB), cell.Provide(newB),
			cell.Hook("m", hookA),
			cell.Module("inner", "Is inside", cell.Hook("inner", hookA))),
	)
	const list = "the list of cells"
	wantSources(t, node(t, p, resolve.Hook, "own"), list+"/resolve_test.decorateB")
	wantSources(t, node(t, p, resolve.Decorator, "resolve_test.decorateB"), list+"/resolve_test.decorateA")
	wantSources(t, node(t, p, resolve.Decorator, "resolve_test.decorateA"), "a/resolve_test.newA")
	wantSources(t, node(t, p, resolve.Hook, "m"), "m/resolve_test.decorateAwithB")
	wantSources(t, node(t, p, resolve.Hook, "inner"), "m/resolve_test.decorateAwithB")
	wantSources(t, node(t, p, resolve.Decorator, "resolve_test.decorateAwithB"), list+"/resolve_test.decorateB", "m/resolve_test.newB")
}

func TestAPrivateValueIsDecoratedInItsModule(t *testing.T) {
	p := fine(t, cell.Module("m", "Keeps and decorates", cell.ProvidePrivate(newA), cell.Decorate(decorateA), root("x")))
	wantSources(t, node(t, p, resolve.Hook, "x"), "m/resolve_test.decorateA")
	wantSources(t, node(t, p, resolve.Decorator, "resolve_test.decorateA"), "m/resolve_test.newA")
}

func TestADisabledModuleDecoratesNothing(t *testing.T) {
	p := fine(t, cell.Config(flags{}), cell.Provide(newA),
		cell.Module("m", "Is on",
			cell.Module("off", "Is off", cell.EnabledBy(on), cell.Decorate(decorateA), cell.Hook("off", hookA)), root("x")))
	wantSources(t, node(t, p, resolve.Hook, "x"), "the list of cells/resolve_test.newA")
	if n := node(t, p, resolve.Decorator, "resolve_test.decorateA"); n.Reached {
		t.Error("reached")
	}
}

func TestPerModuleValues(t *testing.T) {
	p := fine(t,
		cell.Module("k8s", "Makes one for each", cell.ProvidePerModule(scoped), cell.Hook("own", hookA)),
		cell.Module("m", "Asks twice", cell.Hook("one", hookA), cell.Hook("two", hookA),
			cell.Module("inner", "Asks inside", cell.Hook("inner", hookA))),
	)
	wantSources(t, node(t, p, resolve.Hook, "own"), "k8s/resolve_test.scoped for k8s")
	wantSources(t, node(t, p, resolve.Hook, "one"), "k8s/resolve_test.scoped for m")
	wantSources(t, node(t, p, resolve.Hook, "inner"), "k8s/resolve_test.scoped for m.inner")
	if x, y := node(t, p, resolve.Hook, "one").Deps()[0], node(t, p, resolve.Hook, "two").Deps()[0]; x != y {
		t.Error("one module has two values")
	}
}

func TestWhatAPerModuleConstructorTakes(t *testing.T) {
	p := fine(t,
		cell.Module("k8s", "Makes one for each", cell.ProvidePerModule(scopedWithJobs), cell.ProvidePrivate(newB)),
		cell.Module("m", "Asks", cell.Hook("x", hookA)),
	)
	client := node(t, p, resolve.Hook, "x").Deps()[0]
	wantSources(t, client, "the list of cells/cell.ModuleInfo for m", "the list of cells/job.Group for m", "k8s/resolve_test.newB")
}

// A private value that only a per-module constructor takes is used, even while
// no module asks for what that makes.
func TestAPrivateValueOfAPerModuleConstructorIsUsed(t *testing.T) {
	fine(t, cell.Module("k8s", "Makes one for each", cell.ProvidePerModule(scopedWithJobs), cell.ProvidePrivate(newB)))
}

func TestAPrivateValueUsedByADisabledModuleInside(t *testing.T) {
	fine(t, cell.Config(flags{}),
		cell.Module("m", "Provides", cell.ProvidePrivate(newA), cell.Module("off", "Is off", cell.EnabledBy(on), root("x"))))
}

func TestDecoratedPerModuleValuesStayPerModule(t *testing.T) {
	p := fine(t,
		cell.Module("k8s", "Makes one for each", cell.ProvidePerModule(scoped)),
		cell.Decorate(decorateA),
		cell.Decorate(decorateScoped),
		cell.Module("m", "Asks", cell.Hook("m", hookA), cell.Decorate(decorateB)),
		cell.Module("n", "Asks", cell.Hook("n", hookA)),
	)
	const list = "the list of cells"
	wantSources(t, node(t, p, resolve.Hook, "m"), "m/resolve_test.decorateB for m")
	wantSources(t, node(t, p, resolve.Hook, "m").Deps()[0], list+"/resolve_test.decorateScoped for m")
	outer := node(t, p, resolve.Hook, "n").Deps()[0]
	wantSources(t, node(t, p, resolve.Hook, "n"), list+"/resolve_test.decorateScoped for n")
	wantSources(t, outer, list+"/resolve_test.decorateA for n", list+"/cell.ModuleInfo for n")
	wantSources(t, outer.Deps()[0], "k8s/resolve_test.scoped for n")
}

func TestDecoratedBuiltinsStayPerModule(t *testing.T) {
	p := fine(t,
		cell.Decorate(func(g job.Group) job.Group { return g }),
		cell.Module("m", "Asks", cell.Invoke(func(job.Group) {})),
		cell.Module("n", "Asks", cell.Invoke(func(job.Group) {})),
	)
	owners := map[string]bool{}
	for _, n := range p.Nodes {
		if n.Kind == resolve.Decorator && n.Reached {
			owners[n.Owner().ID] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"m": true, "n": true}, owners); diff != "" {
		t.Error(diff)
	}
}

type twoNames struct {
	cell.Out
	One *a `name:"one"`
	Two *a `name:"two"`
}

type takesNames struct {
	cell.In
	Two *a `name:"two"`
	One *a `name:"one"`
}

func newNames() twoNames { return twoNames{} }

func TestNames(t *testing.T) {
	p := fine(t, cell.Provide(newNames), cell.Hook("x", func(takesNames) hookType { return nil }))
	n := node(t, p, resolve.Hook, "x")
	if got := []int{n.Params[0].Sources[0].Result, n.Params[1].Sources[0].Result}; got[0] != 1 || got[1] != 0 {
		t.Error("the names are mixed up:", got)
	}
}

type twoMembers struct {
	cell.Out
	One, Two *a `group:"all"`
}

func newTwoMembers() twoMembers { return twoMembers{} }
func newMember() member         { return member{} }

type otherGroup struct {
	cell.Out
	One *a `group:"other"`
	Two *b `group:"all"`
}

func newOtherGroup() otherGroup { return otherGroup{} }

func TestGroupsAreInDeclarationOrder(t *testing.T) {
	p := fine(t, cell.Config(flags{}),
		cell.Hook("x", hookMembers),
		cell.Module("z", "Has one", cell.Provide(newMember)),
		cell.Module("off", "Is off", cell.EnabledBy(on), cell.Provide(newMember)),
		cell.Module("a", "Has two", cell.Provide(newTwoMembers), cell.Provide(newOtherGroup),
			cell.Module("inner", "Has one", cell.Provide(newMember))),
	)
	n := node(t, p, resolve.Hook, "x")
	wantSources(t, n, "z/resolve_test.newMember", "a/resolve_test.newTwoMembers", "a/resolve_test.newTwoMembers", "a.inner/resolve_test.newMember")
	if s := n.Params[0].Sources; s[1].Result != 0 || s[2].Result != 1 {
		t.Error("one result of a constructor is there twice")
	}
}

func TestGroupsOfTerms(t *testing.T) {
	type standby struct {
		cell.In
		Term lifecycle.Term `name:"standby"`
	}
	p := fine(t,
		cell.Module("leader", "Enters both", cell.Invoke(func(leader, standby) {})),
		cell.Module("process", "Has one", cell.Provide(newMember)),
		cell.Term("leader", cell.Module("one", "Has one", cell.Provide(newMember), cell.Hook("x", hookMembers))),
		cell.Term("standby", cell.Module("two", "Has one", cell.Provide(newMember), cell.Hook("y", hookMembers))),
	)
	wantSources(t, node(t, p, resolve.Hook, "x"), "process/resolve_test.newMember", "one/resolve_test.newMember")
	wantSources(t, node(t, p, resolve.Hook, "y"), "process/resolve_test.newMember", "two/resolve_test.newMember")

	broken := made(t, flags{},
		cell.Module("leader", "Enters", cell.Hook("elect", elect)),
		cell.Term("leader", cell.Module("one", "Has one", cell.Provide(newMember))),
		cell.Hook("x", hookMembers))
	if err := broken.Err(); err == nil || !strings.Contains(err.Error(), "term value in the process") {
		t.Error("a process cell takes a group with a member of a term:", err)
	}
}

func TestAnEmptyGroup(t *testing.T) {
	p := fine(t, cell.Hook("x", hookMembers))
	wantSources(t, node(t, p, resolve.Hook, "x"))
}

func TestOptional(t *testing.T) {
	off := cell.Module("off", "Is off", cell.EnabledBy(on), cell.Provide(newA))
	for name, c := range map[string]struct {
		flags   flags
		cells   []cell.Cell
		sources []string
	}{
		"absent":   {flags{}, nil, nil},
		"disabled": {flags{}, []cell.Cell{off}, nil},
		"enabled":  {flags{On: true}, []cell.Cell{off}, []string{"off/resolve_test.newA"}},
	} {
		p := made(t, c.flags, append(c.cells, cell.Config(flags{}), cell.Hook("x", hookOptional))...)
		if err := p.Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.sources, sources(node(t, p, resolve.Hook, "x"))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	broken := made(t, flags{}, cell.Provide(func(*b) *a { return nil }), cell.Hook("x", hookOptional))
	if err := broken.Err(); err == nil || !strings.Contains(err.Error(), "no module provides *resolve_test.b") {
		t.Error("a broken provider is hidden:", err)
	}
}

func TestSelection(t *testing.T) {
	cells := []cell.Cell{
		cell.Config(flags{}),
		cell.Module("outer", "Is perhaps on", cell.EnabledBy(on), cell.Provide(newA),
			cell.Module("inner", "Is on if both are", cell.EnabledBy(inner), cell.Provide(newB))),
		cell.Module("both", "Has two conditions", cell.EnabledBy(on), cell.EnabledBy(inner)),
	}
	for f, want := range map[flags]map[string]string{
		{}: {
			"outer":       "outer needs that it is on (--on)",
			"outer.inner": "outer needs that it is on (--on); outer.inner needs that the inner one is on (--inner)",
			"both":        "both needs that the inner one is on (--inner); both needs that it is on (--on)",
		},
		{On: true}: {
			"outer.inner": "outer.inner needs that the inner one is on (--inner)",
			"both":        "both needs that the inner one is on (--inner)",
		},
		{Inner: true}: {
			"outer":       "outer needs that it is on (--on)",
			"outer.inner": "outer needs that it is on (--on)",
			"both":        "both needs that it is on (--on)",
		},
		{On: true, Inner: true}: {},
	} {
		p := made(t, f, cells...)
		got := map[string]string{}
		for _, m := range p.Modules {
			if !m.Enabled {
				got[m.ID] = m.WhyDisabled()
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v: %s", f, diff)
		}
	}
}

func TestConfigOfADisabledModuleIsThere(t *testing.T) {
	p := fine(t, cell.Module("off", "Is off", cell.EnabledBy(on), cell.Config(flags{})), cell.Hook("x", func(flags) hookType { return nil }))
	wantSources(t, node(t, p, resolve.Hook, "x"), "off/resolve_test.flags")
}

func TestLastingValuesBelongToTheProcess(t *testing.T) {
	p := fine(t,
		cell.Module("leader", "Enters", cell.Hook("elect", elect)),
		cell.Term("leader", cell.Module("m", "Keeps one", cell.ProvideProcess(newA), cell.Provide(newBfromA), cell.Hook("x", hookAB))),
	)
	if n := node(t, p, resolve.Constructor, "resolve_test.newA"); n.Term != nil || !n.Reached {
		t.Errorf("%+v", n)
	}
	if n := node(t, p, resolve.Constructor, "resolve_test.newBfromA"); n.Term == nil {
		t.Error("an ordinary value of the term is in the process")
	}
}

func TestAPerModuleValueOfATermIsOfTheTerm(t *testing.T) {
	p := fine(t,
		cell.Module("leader", "Enters", cell.Hook("elect", elect)),
		cell.Term("leader", cell.Module("k8s", "Makes one for each", cell.ProvidePerModule(scoped)), cell.Module("m", "Asks", cell.Hook("x", hookA))),
	)
	if n := node(t, p, resolve.Hook, "x").Deps()[0]; n.Term == nil {
		t.Error("it is in the process")
	}
	broken := made(t, flags{},
		cell.Module("leader", "Enters", cell.Hook("elect", elect)),
		cell.Term("leader", cell.Module("k8s", "Makes one for each", cell.ProvidePerModule(scoped))), cell.Hook("x", hookA))
	if err := broken.Err(); err == nil || !strings.Contains(err.Error(), "term value in the process") {
		t.Error(err)
	}
}

func TestOnlyWhatIsAskedForIsReached(t *testing.T) {
	p := fine(t, cell.Provide(newA, newBfromA, newC), cell.Hook("x", hookB))
	for name, want := range map[string]bool{"resolve_test.newA": true, "resolve_test.newBfromA": true, "resolve_test.newC": false} {
		if got := node(t, p, resolve.Constructor, name).Reached; got != want {
			t.Errorf("%s: reached %v", name, got)
		}
	}
	// What is wrong with a constructor that no module needs has no effect.
	fine(t, cell.Provide(func(*b) *a { return nil }))
}

func TestTwoPartsOfATerm(t *testing.T) {
	p := fine(t, cell.Module("leader", "Enters", cell.Hook("elect", elect)),
		cell.Term("leader", cell.Module("one", "Is one", cell.Provide(newA))), cell.Term("leader", cell.Module("two", "Is two", cell.Hook("x", hookA))))
	if len(p.Terms) != 1 {
		t.Error("there are two terms of one name")
	}
}

func TestEditsLeaveTheOriginalAlone(t *testing.T) {
	original := cell.Set(cell.Module("a", "Is a", cell.Module("b", "Is b")), cell.Term("leader", cell.Module("c", "Is c")))
	ids := func(c cell.Cell) (list []string) {
		for _, m := range made(t, flags{}, c, cell.Module("leader", "Enters", cell.Hook("elect", elect))).Modules {
			if m.ID != "" && m.ID != "leader" {
				list = append(list, m.ID)
			}
		}
		return list
	}
	for name, c := range map[string]struct {
		cells cell.Cells
		want  []string
	}{
		"with":              {original.With(cell.Module("d", "Is d")), []string{"a", "a.b", "c", "d"}},
		"with in":           {original.WithInTerm("leader", cell.Module("d", "Is d")), []string{"a", "a.b", "c", "d"}},
		"without":           {original.Without("a"), []string{"c"}},
		"without a part":    {original.Without("a.b"), []string{"a", "c"}},
		"without in a term": {original.Without("c"), []string{"a", "a.b"}},
		"replace":           {original.Replace("a.b", cell.Module("x", "Is x")), []string{"a", "a.x", "c"}},
		"replace in a term": {original.Replace("c", cell.Module("x", "Is x")), []string{"a", "a.b", "x"}},
		"nested sets":       {cell.Set(original).Without("a.b").Without("c"), []string{"a"}},
	} {
		if diff := cmp.Diff(c.want, ids(c.cells)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff([]string{"a", "a.b", "c"}, ids(original)); diff != "" {
			t.Errorf("%s changed the original: %s", name, diff)
		}
	}
}

func TestReplacesIsRemembered(t *testing.T) {
	p := made(t, flags{}, cell.Set(cell.Module("a", "Is a", cell.Module("b", "Is b"))).Replace("a.b", cell.Module("x", "Is x")))
	if m := p.Module("a.x"); m.Replaces != "a.b" {
		t.Errorf("%+v", m)
	}
}
