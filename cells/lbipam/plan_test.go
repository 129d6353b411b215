// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package lbipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// plan is an allocator, and a cluster that stores all that it wants at once.
type plan struct {
	*allocator
	t        testing.TB
	revision slim.Revision
	writes   []string
}

func newPlan(t testing.TB, pools ...*poolObject) *plan {
	p := &plan{allocator: newAllocator(worldSettings), t: t}
	for _, o := range pools {
		p.upsertPool(o)
	}
	return p
}

func newPool(name string, created int, spec poolSpec) *poolObject {
	o := &poolObject{Spec: spec}
	o.Name, o.UID, o.CreationTimestamp, o.Generation = name, slim.ParseUID(name), slim.Time(created), 1
	return o
}

// next is a pool after an edit.
func next(o *poolObject, spec poolSpec) *poolObject {
	edited := *o
	edited.Generation++
	edited.Spec = spec
	return &edited
}

func blocks(all ...string) poolSpec {
	var s poolSpec
	for _, text := range all {
		if start, stop, isRange := strings.Cut(text, "-"); isRange {
			s.Blocks = append(s.Blocks, block{Start: start, Stop: stop})
		} else {
			s.Blocks = append(s.Blocks, block{CIDR: text})
		}
	}
	return s
}

func newService(name string, edits ...func(*serviceObject)) *serviceObject {
	o := &serviceObject{}
	o.Name, o.Namespace, o.UID, o.Generation = name, slim.MakeString("ns"), slim.ParseUID(name), 1
	o.Spec.Type = slim.MakeString(typeLoadBalancer)
	o.Spec.Ports = []servicePort{{Port: 80}}
	for _, e := range edits {
		e(o)
	}
	return o
}

func annotated(pairs ...string) func(*serviceObject) {
	return func(o *serviceObject) {
		all := o.Annotations.Map()
		if all == nil {
			all = map[string]string{}
		}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = pairs[i+1]
		}
		o.Annotations.Labels = slim.MakeLabels(all)
	}
}

func showing(ips ...string) func(*serviceObject) {
	return func(o *serviceObject) {
		for _, ip := range ips {
			o.Status.LoadBalancer.Ingress = append(o.Status.LoadBalancer.Ingress, ingress{IP: ip})
		}
		o.Status.Conditions = []condition{{Type: slim.MakeString(conditionSatisfied), Status: slim.MakeString(statusTrue), Reason: slim.MakeString(reasonSatisfied), ObservedGeneration: 1}}
	}
}

func (p *plan) put(all ...*serviceObject) {
	for _, o := range all {
		p.revision++
		o.ResourceVersion = p.revision
		p.upsertService(o)
	}
	p.storeWrites()
}

// storeWrites stores what is to be written, until there is nothing.
func (p *plan) storeWrites() {
	for len(p.dirtyServices) > 0 {
		for key := range p.dirtyServices {
			delete(p.dirtyServices, key)
			s := p.services[key]
			want, ok := p.desiredService(s)
			if !ok || !p.differs(s) {
				continue
			}
			p.writes = append(p.writes, key.Name)
			p.revision++
			after := *s.object
			after.ResourceVersion = p.revision
			after.Status = serviceStatus{}
			for _, addr := range want.addrs {
				after.Status.LoadBalancer.Ingress = append(after.Status.LoadBalancer.Ingress, ingress{IP: addr.String()})
			}
			for _, c := range want.conditions {
				after.Status.Conditions = append(after.Status.Conditions, condition{Type: slim.MakeString(c.kind), Status: slim.MakeString(c.status), Reason: slim.MakeString(c.reason), Message: c.message, ObservedGeneration: c.generation})
			}
			p.upsertService(&after)
		}
	}
}

func (p *plan) sync() {
	p.markSynced()
	p.storeWrites()
}

// want compares what a Service has: its addresses, and why it misses others.
func (p *plan) want(name, want string) {
	p.t.Helper()
	s := p.services[slim.Key{Namespace: "ns", Name: name}]
	if s == nil {
		p.t.Fatalf("%s is not known", name)
	}
	got := strings.TrimSpace(fmt.Sprint(strings.Trim(fmt.Sprint(s.held), "[]"), " ", s.result.reason))
	if got != want {
		p.t.Errorf("%s has %q (%s), want %q", name, got, s.result.message, want)
	}
}

// Bad input is reported on the object, and disturbs no other.
func TestBadPools(t *testing.T) {
	for name, test := range map[string]struct {
		spec poolSpec
		want string
	}{
		"reversed range":    {blocks("10.0.9.9-10.0.9.1"), `block 1 ("10.0.9.9" to "10.0.9.1"): the start is above the stop`},
		"mixed families":    {blocks("10.0.9.0/24", "10.0.9.9-fd00::1"), `block 2 ("10.0.9.9" to "fd00::1"): start and stop are of different families`},
		"no CIDR":           {blocks("10.0.9.0/33"), `block 1 (cidr "10.0.9.0/33"): it is no CIDR`},
		"all of IPv4":       {blocks("0.0.0.0/0"), `block 1 (cidr "0.0.0.0/0"): it is all addresses of a family`},
		"all of IPv6":       {blocks("::/0"), `block 1 (cidr "::/0"): it is all addresses of a family`},
		"all, as a range":   {blocks("0.0.0.0-255.255.255.255"), `block 1 ("0.0.0.0" to "255.255.255.255"): it is all addresses of a family`},
		"no address":        {blocks("x-"), `block 1 ("x" to "x"): "x" is no IP address`},
		"a zone":            {blocks("fe80::1%eth0-fe80::2%eth0"), `block 1 ("fe80::1%eth0" to "fe80::2%eth0"): an address with a zone is of one link only`},
		"an empty block":    {poolSpec{Blocks: []block{{}}}, `block 1 (cidr ""): neither cidr nor start is set`},
		"a mapped CIDR":     {blocks("::ffff:10.0.9.0/120"), ""},
		"one address":       {blocks("10.0.9.1-"), ""},
		"no blocks":         {poolSpec{}, ""},
		"a whole /1 and /2": {blocks("128.0.0.0/1", "64.0.0.0/2"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlan(t, newPool("bad", 1, test.spec), newPool("good", 2, blocks("10.0.0.0/24")))
			p.put(newService("a"))
			p.sync()
			got := ""
			if bad := p.pools["bad"]; bad.problem != nil {
				got = bad.problem.message
				want := "10.0.0.0"
				if len(bad.ranges) > 0 { // another block of it serves
					want = "10.0.9.0"
				}
				p.want("a", want)
			}
			if got != test.want {
				t.Errorf("the problem is %q, want %q", got, test.want)
			}
			if good := p.pools["good"]; good.problem != nil || good.conflict != "" {
				t.Errorf("the other pool has %v %q", good.problem, good.conflict)
			}
		})
	}
}

// Number 49 of the contract's lb-ipam.md; LBIP-7: of a pool with a block that becomes invalid the others serve on, and nothing is taken from the
// Services that hold its addresses, also after a restart.
func TestInvalidPoolKeepsAllocations(t *testing.T) {
	o := newPool("p", 1, blocks("10.0.0.0/24", "10.0.1.0/24"))
	p := newPlan(t, o)
	p.put(newService("a", annotated(requestAnnotation, "10.0.1.7")), newService("b"))
	p.sync()
	o = next(o, blocks("10.0.0.0/24", "10.0.1.0/240"))
	p.upsertPool(o)
	p.storeWrites()
	p.put(newService("c"))
	p.want("a", "10.0.1.7")
	p.want("b", "10.0.0.0")
	p.want("c", "10.0.0.1")

	again := newPlan(t, o)
	again.put(newService("a", annotated(requestAnnotation, "10.0.1.7"), showing("10.0.1.7")), newService("b", showing("10.0.0.0")))
	again.sync()
	if len(again.writes) > 0 {
		t.Errorf("a restart wrote %v", again.writes)
	}
	corrected := next(o, blocks("10.0.0.0/24", "10.0.1.0/24"))
	again.upsertPool(corrected)
	again.put(newService("d", annotated(requestAnnotation, "10.0.1.8")))
	again.storeWrites()
	again.want("d", "10.0.1.8")
	again.upsertPool(next(corrected, blocks("10.0.0.0/24")))
	again.storeWrites()
	again.want("a", "no_pool")
	again.want("b", "10.0.0.0")
}

// Nothing is taken for an address in a pool that cannot be decoded, and nothing allocated next to a Service of which it is
// not known what it has.
func TestUnknownObjects(t *testing.T) {
	p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24")))
	p.setUnknown([]slim.Key{{Name: "q"}}, []slim.Key{{Namespace: "ns", Name: "x"}})
	p.put(newService("a", showing("10.0.9.9")), newService("b"))
	p.sync()
	p.want("a", "10.0.9.9")
	p.want("b", "")
	if len(p.writes) > 0 {
		t.Errorf("it wrote %v", p.writes)
	}
	p.setUnknown([]slim.Key{{Name: "q"}}, nil)
	p.storeWrites()
	p.want("b", "10.0.0.0")
	p.setUnknown(nil, nil)
	p.storeWrites()
	p.want("a", "10.0.0.1")
}

// Garbage in annotations is reported on the Service. One that holds addresses keeps them as long as it is not known what it
// asks for.
func TestBadRequests(t *testing.T) {
	for value, want := range map[string]string{
		"x":                   "invalid_ip",
		"10.0.0.300":          "invalid_ip",
		"fe80::1%eth0":        "invalid_ip",
		"0.0.0.0":             "invalid_ip",
		"10.0.0.5, x":         "10.0.0.5 invalid_ip",
		" ":                   "10.0.0.0",
		",":                   "10.0.0.0",
		"10.0.0.5,10.0.0.5":   "10.0.0.5",
		"::ffff:10.0.0.5":     "10.0.0.5",
		"192.0.2.1, 10.0.0.5": "10.0.0.5 no_pool",
		"10.0.0.5, 10.9.0.1":  "10.0.0.5 no_pool",
	} {
		p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24")), newPool("off", 1, poolSpec{Disabled: true, Blocks: blocks("10.9.0.0/24").Blocks}))
		p.sync()
		p.put(newService("a", annotated(requestAnnotation, value)))
		t.Log(value)
		p.want("a", want)
	}
	p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24")))
	p.put(newService("a", annotated(requestAnnotation, "x"), showing("10.0.0.77")))
	p.sync()
	p.want("a", "10.0.0.77 invalid_ip")
	p.put(newService("a", annotated(requestAnnotation, "10.0.0.78"), showing("10.0.0.77")))
	p.want("a", "10.0.0.78")
}

// LBIP-4.
func TestFamilies(t *testing.T) {
	both, four, six := settings{ipv4: true, ipv6: true}, settings{ipv4: true}, settings{ipv6: true}
	for _, test := range []struct {
		settings settings
		policy   string
		listed   []string
		want     string
	}{
		{both, "", nil, "[IPv4]"}, {six, "", nil, "[IPv6]"}, {four, "SingleStack", []string{"IPv6"}, "[IPv6]"}, {six, "", []string{"IPv4", "IPv6"}, "[IPv4]"},
		{both, "PreferDualStack", []string{"IPv6"}, "[IPv6]"}, {four, "PreferDualStack", []string{"IPv6"}, "[IPv4]"}, {both, "PreferDualStack", []string{"IPv6", "IPv4"}, "[IPv4 IPv6]"},
		{both, "PreferDualStack", nil, "[IPv4 IPv6]"}, {four, "RequireDualStack", []string{"IPv4", "IPv6"}, "[IPv4]"}, {both, "RequireDualStack", nil, "[IPv4 IPv6]"},
		{settings{}, "", nil, "[]"},
	} {
		o := newService("a")
		o.Spec.IPFamilyPolicy = slim.MakeString(test.policy)
		for _, f := range test.listed {
			o.Spec.IPFamilies = append(o.Spec.IPFamilies, slim.MakeString(f))
		}
		if got := fmt.Sprint(test.settings.families(o)); got != test.want {
			t.Errorf("%s %v: %s, want %s", test.policy, test.listed, got, test.want)
		}
	}
}

// Numbers 38, 41, 42 and 43 of the contract's lb-ipam.md; LBIP-22.
func TestSharing(t *testing.T) {
	base := func(edits ...func(*serviceObject)) *sharing {
		o := newService("a", append([]func(*serviceObject){annotated(sharingKeyAnnotation, "k")}, edits...)...)
		s := settings{}.parseSharing(o)
		return &s
	}
	port := func(n int32) func(*serviceObject) {
		return func(o *serviceObject) { o.Spec.Ports = []servicePort{{Port: n}} }
	}
	ports := func(all ...servicePort) func(*serviceObject) {
		return func(o *serviceObject) { o.Spec.Ports = all }
	}
	tcp80, udp80, tcp443 := servicePort{80, slim.MakeString("TCP")}, servicePort{80, slim.MakeString("UDP")}, servicePort{443, slim.MakeString("TCP")}
	numbersOnly := func(s *sharing) *sharing {
		s.numbersOnly = true
		return s
	}
	namespace := func(ns string) func(*serviceObject) {
		return func(o *serviceObject) { o.Namespace = slim.MakeString(ns) }
	}
	policy := func(p string, selector map[string]string) func(*serviceObject) {
		return func(o *serviceObject) {
			o.Spec.ExternalTrafficPolicy, o.Spec.Selector = slim.MakeString(p), slim.MakeLabels(selector)
		}
	}
	app := map[string]string{"app": "a"}
	for _, test := range []struct {
		a, b *sharing
		want string
	}{
		{base(), base(port(81)), ""},
		{base(), base(), "same port and protocol"},
		{base(ports(tcp80)), base(ports(udp80)), ""},                                    // 38
		{base(ports(tcp80, tcp443)), base(ports(tcp443)), "same port and protocol"},     // 41
		{base(), base(ports(tcp80)), "same port and protocol"},                          // 42
		{base(), base(ports(servicePort{80, slim.MakeString("SCTP")})), ""},             // 42
		{numbersOnly(base(ports(tcp80))), numbersOnly(base(ports(udp80))), "same port"}, // 43
		{base(), base(annotated(sharingKeyAnnotation, "l")), "different sharing key"},
		{base(annotated(sharingKeyAnnotation, "")), base(annotated(sharingKeyAnnotation, "")), "different sharing key"},
		{base(), base(port(81), namespace("b")), "different and not permitted namespace"},
		{base(annotated(crossNamespaceAnnotation, "*")), base(port(81), namespace("b")), "different and not permitted namespace"},
		{base(annotated(crossNamespaceAnnotation, "*")), base(port(81), namespace("b"), annotated(crossNamespaceAnnotation, "x,ns")), ""},
		{base(annotated(crossNamespaceAnnotation, "*")), base(port(81), namespace("b"), annotated(crossNamespaceAnnotation, "x, ns")), "different and not permitted namespace"},
		{base(policy("Cluster", nil)), base(port(81), policy("Local", nil)), "different ExternalTrafficPolicy"},
		{base(policy("Local", nil)), base(port(81), policy("Local", nil)), "compatible ExternalTrafficPolicy local but selecting different set of pods"},
		{base(policy("Local", app)), base(port(81), policy("Local", app)), ""},
	} {
		if got := incompatible(test.a, test.b); got != test.want {
			t.Errorf("%+v and %+v: %q, want %q", test.a, test.b, got, test.want)
		}
		if got := incompatible(test.b, test.a); got != test.want {
			t.Errorf("the other way round: %q, want %q", got, test.want)
		}
	}
}

// Number 43 of the contract's lb-ipam.md; LBIP-22: agents of 1.18 tell protocols apart if an option says so, later ones always.
func TestPortsByProtocol(t *testing.T) {
	for i, r := range release.All() {
		for _, option := range []bool{false, true} {
			shared := cluster.DefaultConfig
			shared.Release = r
			if got, want := newSettings(Config{BPFLBProtoDiff: option}, shared).numbersOnly, i < 2 && !option; got != want {
				t.Errorf("%v, option %t: ports are told apart by numbers only: %t", r, option, got)
			}
		}
	}
}

// Numbers 39 and 40 of the contract's lb-ipam.md; LBIP-15: an address that Services share at the start stays with them, whatever their ports, and one whose ports change
// after that keeps to the rule.
func TestSharesAtTheStartStay(t *testing.T) {
	udp := func(o *serviceObject) { o.Spec.Ports = []servicePort{{53, slim.MakeString("UDP")}} }
	tcp := func(o *serviceObject) { o.Spec.Ports = []servicePort{{53, slim.MakeString("TCP")}} }
	for name, request := range map[string]func(*serviceObject){
		"any address":     annotated(sharingKeyAnnotation, "dns"),
		"a requested one": annotated(sharingKeyAnnotation, "dns", requestAnnotation, "10.0.0.7"),
	} {
		p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24")))
		p.settings.numbersOnly = true
		p.put(newService("tcp", request, tcp, showing("10.0.0.7")), newService("udp", request, udp, showing("10.0.0.7")))
		p.sync()
		p.want("tcp", "10.0.0.7")
		p.want("udp", "10.0.0.7")
		if len(p.writes) > 0 {
			t.Errorf("%s: it wrote %q", name, p.writes)
		}
		p.put(newService("udp", request, udp, annotated("other", "x"), showing("10.0.0.7")))
		p.want("udp", "10.0.0.7")
	}
	p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24")))
	p.settings.numbersOnly = true
	key := annotated(sharingKeyAnnotation, "dns")
	p.put(newService("tcp", key, tcp, showing("10.0.0.7")), newService("udp", key, udp, showing("10.0.0.7")))
	p.sync()
	more := func(o *serviceObject) { o.Spec.Ports = append(o.Spec.Ports, servicePort{54, slim.MakeString("UDP")}) }
	p.put(newService("udp", key, udp, more, showing("10.0.0.7")))
	p.want("udp", "10.0.0.0")
	p.want("tcp", "10.0.0.7")
}

// LBIP-10: of two pools of one second the one that is marked stays so.
func TestMarkedPoolStaysMarked(t *testing.T) {
	marked := newPool("a", 1, blocks("10.0.0.0/24"))
	marked.Status = &poolStatus{Conditions: []condition{{Type: slim.MakeString(conditionConflict), Status: slim.MakeString("True")}}}
	p := newPlan(t, marked)
	p.upsertPool(newPool("b", 1, blocks("10.0.0.0/24")))
	p.sync()
	if p.pools["a"].conflict == "" || p.pools["b"].conflict != "" {
		t.Errorf("conflicts: a %q, b %q", p.pools["a"].conflict, p.pools["b"].conflict)
	}
}

// LBIP-21: an edit that lets another Service share an address is told to that one.
func TestSharingIsRetried(t *testing.T) {
	p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/32")))
	p.sync()
	a := newService("a", annotated(sharingKeyAnnotation, "k"))
	p.put(a, newService("b", annotated(sharingKeyAnnotation, "k")))
	p.want("b", "out_of_ips")
	moved := newService("a", annotated(sharingKeyAnnotation, "k"), showing("10.0.0.0"))
	moved.Spec.Ports = []servicePort{{Port: 81}}
	p.put(moved)
	p.want("a", "10.0.0.0")
	p.want("b", "10.0.0.0")
}

// LBIP-25: what a changed pool still covers is kept, and moved to another pool is kept, too.
func TestChangedPoolsKeepAllocations(t *testing.T) {
	o := newPool("p", 1, blocks("10.0.0.0/24"))
	p := newPlan(t, o)
	p.sync()
	for i := range 8 {
		p.put(newService(fmt.Sprint("s", i)))
	}
	p.writes = nil
	o = next(o, blocks("10.0.0.0-10.0.0.5", "10.0.1.0/24"))
	p.upsertPool(o)
	p.storeWrites()
	slices.Sort(p.writes)
	if !slices.Equal(p.writes, []string{"s6", "s7"}) {
		t.Errorf("an edit wrote %v", p.writes)
	}
	p.want("s5", "10.0.0.5")
	p.want("s6", "10.0.1.0")
	p.writes = nil
	p.upsertPool(newPool("q", 2, blocks("10.0.0.0/24")))
	p.removePool("p")
	p.storeWrites()
	p.want("s5", "10.0.0.5")
	p.want("s6", "10.0.0.6")
}

// counting counts how often the selector of a pool is asked.
type counting struct {
	labels.Selector
	asked *int
}

func (c counting) Matches(l labels.Labels) bool {
	*c.asked++
	return c.Selector.Matches(l)
}

// An edit of one pool costs, in allocations of memory as a measure of work, the same with 100 and with 10,000 Services
// whose addresses it does not concern.
func TestPoolEditsCostTheSameWithManyServices(t *testing.T) {
	measure := func(n int) (allocs []float64) {
		o, created := newPool("p", 1, blocks("10.0.0.0/16")), 1
		p := newPlan(t, o)
		p.sync()
		for i := range n {
			p.put(newService(fmt.Sprint("s", i)))
		}
		p.writes = nil
		for _, edit := range []func(){
			func() { created++; p.upsertPool(newPool("q", created, blocks("10.1.0.0/16"))); p.removePool("q") },
			func() { o = next(o, blocks("10.0.0.0/16", "10.2.0.0/16")); p.upsertPool(o) },
			func() { o = next(o, blocks("10.0.0.0/16")); p.upsertPool(o) },
			func() { o = next(o, o.Spec); o.Spec.Disabled = !o.Spec.Disabled; p.upsertPool(o) },
		} {
			allocs = append(allocs, testing.AllocsPerRun(10, edit))
		}
		p.storeWrites()
		if len(p.writes) > 0 {
			t.Errorf("%d Services are written", len(p.writes))
		}
		return allocs
	}
	few, many := measure(100), measure(10_000)
	for i := range few {
		if many[i] > few[i]+5 {
			t.Errorf("edit %d: %.0f allocations with 10,000 Services, %.0f with 100", i, many[i], few[i])
		}
	}
}

// An edit of one pool costs, in decisions and writes, what it changes: not what there is.
func TestPoolEditsCostWhatTheyChange(t *testing.T) {
	big := newPool("big", 1, blocks("10.0.0.0/16"))
	small := newPool("small", 2, blocks("10.9.0.0/28"))
	p := newPlan(t, big, small)
	p.sync()
	for i := range 10_000 {
		p.put(newService(fmt.Sprint("s", i)))
	}
	for i := range 5 {
		p.put(newService(fmt.Sprint("t", i), annotated(requestAnnotation, fmt.Sprint("10.9.0.", i))))
	}
	for _, test := range []struct {
		name   string
		edit   func()
		writes int
	}{
		{"another pool", func() { p.upsertPool(newPool("new", 3, blocks("10.10.0.0/16"))) }, 0},
		{"a longer pool", func() { small = next(small, blocks("10.9.0.0/28", "10.9.1.0/28")); p.upsertPool(small) }, 0},
		{"a pool without some", func() { small = next(small, blocks("10.9.0.2-10.9.0.15")); p.upsertPool(small) }, 2},
		{"the pool of all, longer", func() { big = next(big, blocks("10.0.0.0/16", "10.11.0.0/16")); p.upsertPool(big) }, 0},
		{"the pool of all, without two", func() { big = next(big, blocks("10.0.0.2-10.0.255.255", "10.11.0.0/16")); p.upsertPool(big) }, 2},
		{"the pool of all, disabled", func() {
			spec := big.Spec
			spec.Disabled = true
			big = next(big, spec)
			p.upsertPool(big)
		}, 0},
		{"another pool is deleted", func() { p.removePool("new") }, 0},
	} {
		asked := 0
		for _, pool := range p.order {
			pool.selector = counting{pool.selector, &asked}
		}
		p.writes = nil
		test.edit()
		p.storeWrites()
		if len(p.writes) > test.writes || asked > 200 {
			t.Errorf("%s: %d writes, want %d; selectors were asked %d times", test.name, len(p.writes), test.writes, asked)
		}
	}
}

// A Service that becomes another's loses what it showed before, also what it was to lose anyway; not what it shows of the
// other controller.
func TestNoLongerOurs(t *testing.T) {
	p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/29")))
	p.put(newService("a", showing("10.0.0.2")))
	p.sync()
	p.upsertService(newService("a", showing("10.0.0.2"), annotated(requestAnnotation, "10.0.0.3"))) // not written yet
	p.upsertService(newService("a", showing("10.0.0.2", "192.0.2.1"), annotated(requestAnnotation, "10.0.0.3"), func(o *serviceObject) {
		o.Spec.LoadBalancerClass = slim.MakeString("example.com/other")
	}))
	s := p.services[slim.Key{Namespace: "ns", Name: "a"}]
	if w, ok := p.desiredService(s); !ok || w.ingress(netip.MustParseAddr("10.0.0.2")) || !w.ingress(netip.MustParseAddr("192.0.2.1")) {
		t.Error("the address of the pool stays, or that of the other controller goes")
	}
}

// LBIP-16: the oldest Service is first.
func TestOldestFirst(t *testing.T) {
	p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/31")))
	for i, name := range []string{"young", "old", "oldest"} {
		p.put(newService(name, func(o *serviceObject) { o.CreationTimestamp = slim.Time(10 - i) }))
	}
	p.sync()
	p.want("oldest", "10.0.0.0")
	p.want("old", "10.0.0.1")
	p.want("young", "out_of_ips")
}

// Number 44 of the contract's lb-ipam.md; LBIP-1 and the options that newer agents know.
func TestClasses(t *testing.T) {
	class := func(name string) *serviceObject {
		return newService("a", func(o *serviceObject) { o.Spec.LoadBalancerClass = slim.MakeString(name) })
	}
	shared := cluster.DefaultConfig
	for _, test := range []struct {
		config Config
		edit   func(*cluster.Config)
		want   string // classes that are served
	}{
		{Config{}, func(*cluster.Config) {}, "none"},
		{Config{LBIPAMRequireLBClass: true}, func(c *cluster.Config) { c.EnableL2Announcements = true }, classL2},
		{Config{}, func(c *cluster.Config) { c.DefaultLBServiceIPAM = cluster.NodeIPAM; c.EnableBGPControlPlane = true }, classBGP},
		{Config{}, func(c *cluster.Config) { c.DefaultLBServiceIPAM = cluster.NoLBIPAM }, ""},
		{Config{}, func(c *cluster.Config) { c.DefaultLBServiceIPAM = cluster.NoLBIPAM; c.EnableL2Announcements = true }, classL2},
		{Config{}, func(c *cluster.Config) { c.DefaultLBServiceIPAM = cluster.NodeIPAM; c.EnableL2Announcements = true }, classL2},
	} {
		c := shared
		test.edit(&c)
		s := newSettings(test.config, c)
		for name, o := range map[string]*serviceObject{"none": newService("a"), classBGP: class(classBGP), classL2: class(classL2), "io.cilium/node": class("io.cilium/node"), "foo.io/bar": class("foo.io/bar")} {
			if got := s.serves(o); got != (name == test.want) {
				t.Errorf("%+v: class %s is served: %t", test, name, got)
			}
		}
	}
}

func BenchmarkService(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := newPlan(b, newPool("p", 1, blocks("10.0.0.0/8")))
			p.sync()
			for i := range n {
				p.upsertService(newService(fmt.Sprint("s", i)))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				o := newService(fmt.Sprint("n", i%100))
				p.upsertService(o)
				p.removeService(o.Key())
			}
		})
	}
}

func TestAddressOfAHugePool(t *testing.T) {
	p := newPlan(t, newPool("p", 1, blocks("ff::/48")))
	p.sync()
	p.put(newService("a", func(o *serviceObject) { o.Spec.IPFamilies = []slim.String{slim.MakeString(alloc.IPv6.String())} }))
	p.want("a", netip.MustParseAddr("ff::").String())
	if got := p.pools["p"].addresses.Free().String(); got != "1208925819614629174706175" {
		t.Errorf("%s are free", got)
	}
}

// LBIP-32; number 4.1 of the contract's tenants.md: one Service does not get all addresses, and what its status shows is among those that it gets.
func TestTooManyRequests(t *testing.T) {
	o := &serviceObject{}
	var ips []string
	for i := range 18_000 {
		ips = append(ips, fmt.Sprintf("10.0.%d.%d", i/250, i%250+1))
	}
	o.Annotations.Labels = slim.MakeLabels(map[string]string{requestAnnotation: strings.Join(ips, ",") + ",fd00::1,x"})
	o.Status.LoadBalancer.Ingress = append(o.Status.LoadBalancer.Ingress, ingress{IP: "10.0.0.9"})
	r := settings{ipv4: true, ipv6: true, most: 4}.parseRequest(o, shownAddrs(o))
	if got := fmt.Sprint(r.ips, r.had, r.beyond, r.invalid); got != "[10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.9 fd00::1] [] 17996x" {
		t.Error(got)
	}
	if !r.admits(netip.MustParseAddr("10.0.0.9"), nil) || r.admits(netip.MustParseAddr("10.0.0.8"), nil) {
		t.Error("what is shown stays, and nothing else")
	}
}

// LBIP-35; number 4.1 of the contract's tenants.md: what a user writes into the status of a Service keeps no address from others, and the Service gets no
// more than it may have. What it showed when the allocator began stays.
func TestStatusWrittenByHand(t *testing.T) {
	var all []string
	for i := range 256 {
		all = append(all, fmt.Sprintf("10.0.0.%d", i))
	}
	for name, test := range map[string]struct {
		request string
		most    int // addresses of the Service
	}{"without a request": {"", 1}, "with a request": {strings.Join(all, ","), 4}, "with one that is invalid": {"x", 0}, "with one for another address": {"10.9.9.9", 0}} {
		t.Run(name, func(t *testing.T) {
			p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24")))
			p.settings.most = 4
			edit := annotated()
			if test.request != "" {
				edit = annotated(requestAnnotation, test.request)
			}
			p.sync()
			p.put(newService("bb", edit))
			bb := newService("bb", edit, showing(all...))
			p.revision++
			bb.ResourceVersion = p.revision
			p.upsertService(bb)
			p.revision++
			aa := newService("aa")
			aa.ResourceVersion = p.revision
			p.upsertService(aa)
			if held := p.services[aa.Key()].held; len(held) != 1 {
				t.Errorf("beside that status another Service has %v", held)
			}
			p.storeWrites()
			if s := p.services[bb.Key()]; len(s.held) != test.most || len(s.shown) != test.most {
				t.Errorf("it has %d, and shows %d", len(s.held), len(s.shown))
			}
		})
	}
	p := newPlan(t, newPool("p", 1, blocks("10.0.0.0/24")))
	p.settings.most = 4
	p.put(newService("bb", annotated(requestAnnotation, strings.Join(all, ",")), showing(all[:9]...)))
	p.sync()
	if s := p.services[slim.Key{Namespace: "ns", Name: "bb"}]; len(s.held) != 9 || len(s.shown) != 9 {
		t.Errorf("after a start it has %d of the 9 that it showed", len(s.held))
	}
}
