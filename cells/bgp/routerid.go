// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package bgp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/skep-operator/skep/resources/domain/alloc"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// holder is a router of a node, which has a router ID. The router "" stands for what cannot be decoded.
type holder struct{ node, instance string }

func (h holder) String() string { return fmt.Sprintf("instance %s of node %s", h.instance, h.node) }

// routerIDs allocates router IDs. A router holds the one that its CiliumBGPNodeConfig shows, the one that is to be written,
// and those of writes whose result is not known. The methods of a nil routerIDs do nothing.
type routerIDs struct {
	addresses *alloc.Addresses[holder]
	pool      *alloc.AddressPool[holder]
	synced    bool
	nodes     map[string]*nodeIDs
	shown     map[netip.Addr]map[holder]bool // all claims, also of those that do not hold it
	wanted    map[netip.Addr]map[holder]bool // by overrides
	waiting   map[string]bool                // nodes that lack a router ID
	hidden    string                         // a CiliumBGPNodeConfig of which nothing can be decoded
	released  bool
}

// nodeIDs are the router IDs of a node.
type nodeIDs struct {
	shown    map[netip.Addr]holder
	planned  map[netip.Addr]holder
	sent     map[netip.Addr]holder // in writes that are not observed
	revision slim.Revision         // as observed
	written  slim.Revision         // of the last write
	unknown  bool                  // whether the result of a write is not known: what was sent is kept until the term ends
	blind    bool                  // there may be more in the CiliumBGPNodeConfig, which cannot be decoded
}

// isUnused reports whether there is nothing to remember.
func (n *nodeIDs) isUnused() bool { return len(n.shown)+len(n.planned)+len(n.sent) == 0 && !n.blind }

// newRouterIDs returns nil if agents choose.
func newRouterIDs(pool netip.Prefix) *routerIDs {
	if !pool.IsValid() {
		return nil
	}
	r := &routerIDs{
		addresses: alloc.NewAddresses[holder](), nodes: map[string]*nodeIDs{},
		shown: map[netip.Addr]map[holder]bool{}, wanted: map[netip.Addr]map[holder]bool{}, waiting: map[string]bool{},
	}
	r.pool = r.addresses.NewPool()
	_ = r.pool.Set(alloc.AddressRange{IPRange: netipx.RangeOfPrefix(pool)}) // one range, which is valid
	return r
}

func (r *routerIDs) node(name string) *nodeIDs {
	n := r.nodes[name]
	if n == nil {
		n = &nodeIDs{}
		r.nodes[name] = n
	}
	return n
}

// restore holds the router IDs that CiliumBGPNodeConfigs show, those of the oldest first, and starts the allocation.
func (r *routerIDs) restore(all []*nodeConfig) {
	if r == nil || r.synced {
		return
	}
	r.synced = true
	for _, o := range all {
		r.observe(o)
	}
}

// observe holds the router IDs that a CiliumBGPNodeConfig shows.
func (r *routerIDs) observe(o *nodeConfig) {
	if r == nil || !r.synced {
		return
	}
	n := r.node(o.Name)
	before := n.shown
	n.shown = map[netip.Addr]holder{}
	for i := range o.Spec.BGPInstances {
		if a := o.Spec.BGPInstances[i].routerID(); a.IsValid() {
			n.shown[a] = holder{o.Name, o.Spec.BGPInstances[i].Name.String()}
		}
	}
	var found []netip.Addr
	wasBlind := n.blind
	found, n.blind = o.undecodedIDs()
	r.released = r.released || wasBlind && !n.blind
	for _, a := range found {
		n.shown[a] = holder{o.Name, ""}
	}
	r.show(before, n.shown)
	r.releaseUnused(n, before)
	n.revision = o.ResourceVersion
	r.confirm(n)
}

// forget releases the router IDs of a CiliumBGPNodeConfig that is gone.
func (r *routerIDs) forget(name string) {
	if r == nil || !r.synced || r.nodes[name] == nil {
		return
	}
	n := r.nodes[name]
	before := n.shown
	r.released = r.released || n.blind
	n.shown, n.blind = nil, false
	r.show(before, nil)
	r.releaseUnused(n, before)
}

// show updates the claims, and holds what is shown and free.
func (r *routerIDs) show(before, now map[netip.Addr]holder) {
	for a, h := range before {
		if now[a] != h {
			drop(r.shown, a, h)
		}
	}
	for a, h := range now {
		add(r.shown, a, h)
		_ = r.addresses.Reserve(a, h) // one that another router holds is shown by both
	}
}

// releaseUnused releases those router IDs that a node has no use for any more. Another router that shows one holds it then.
func (r *routerIDs) releaseUnused(n *nodeIDs, used map[netip.Addr]holder) {
	for a, h := range used {
		if n.shown[a] == h || n.planned[a] == h || n.sent[a] == h || !r.addresses.Release(a, h) {
			continue
		}
		r.released = true
		for _, other := range slices.SortedFunc(maps.Keys(r.shown[a]), compareHolders) {
			if r.addresses.Reserve(a, other) == nil {
				break
			}
		}
	}
}

func compareHolders(a, b holder) int {
	return strings.Compare(a.node+"/"+a.instance, b.node+"/"+b.instance)
}

func add(to map[netip.Addr]map[holder]bool, a netip.Addr, h holder) {
	if to[a] == nil {
		to[a] = map[holder]bool{}
	}
	to[a][h] = true
}

func drop(from map[netip.Addr]map[holder]bool, a netip.Addr, h holder) {
	delete(from[a], h)
	if len(from[a]) == 0 {
		delete(from, a)
	}
}

// want keeps the router IDs of an override from being allocated to others.
func (r *routerIDs) want(o *override) {
	r.eachWanted(o, func(a netip.Addr, h holder) { add(r.wanted, a, h) })
}

func (r *routerIDs) unwant(o *override) {
	r.eachWanted(o, func(a netip.Addr, h holder) {
		drop(r.wanted, a, h)
		r.released = true
	})
}

func (r *routerIDs) eachWanted(o *override, f func(netip.Addr, holder)) {
	if r == nil || o == nil {
		return
	}
	for i := range o.Spec.BGPInstances {
		if a := o.Spec.BGPInstances[i].routerID(); a.IsValid() {
			f(a, holder{o.Name, o.Spec.BGPInstances[i].Name.String()})
		}
	}
}

// drainWaiting are the nodes that lack a router ID, if one was released since.
func (r *routerIDs) drainWaiting() (names []string) {
	if r == nil || !r.released {
		return nil
	}
	r.released = false
	names = slices.Collect(maps.Keys(r.waiting))
	clear(r.waiting)
	return names
}

// plan sets the router IDs of the routers of a node, which have those of overrides. The router IDs of the node that are not
// shown, and not to be any more, are released. With an error nothing is changed.
func (r *routerIDs) plan(name string, routers []instance) error {
	if r == nil {
		return nil
	}
	n := r.node(name)
	before := n.planned
	planned := map[netip.Addr]holder{}
	for i := range routers {
		h := holder{name, routers[i].Name.String()}
		a, err := r.choose(n, h, &routers[i])
		if err != nil {
			r.releaseUnused(n, planned) // what was chosen for the others
			r.waiting[name] = true
			return err
		}
		planned[a] = h
		routers[i].RouterID = slim.MakeString(a.String())
	}
	n.planned = planned
	r.releaseUnused(n, before)
	delete(r.waiting, name)
	if n.isUnused() {
		delete(r.nodes, name)
	}
	return nil
}

// begin keeps the router IDs of a write until it is observed.
func (r *routerIDs) begin(name string) {
	if r == nil {
		return
	}
	n := r.node(name)
	if n.sent == nil {
		n.sent = map[netip.Addr]holder{}
	}
	maps.Copy(n.sent, n.planned)
}

// end records the result of a write: the revision of the object as stored, 0 if nothing was written.
func (r *routerIDs) end(name string, revision slim.Revision, known bool) {
	if r == nil {
		return
	}
	n := r.node(name)
	n.written = max(n.written, revision)
	n.unknown = n.unknown || !known
	r.confirm(n)
}

// confirm releases what was sent, if the CiliumBGPNodeConfig is observed as it was written.
func (r *routerIDs) confirm(n *nodeIDs) {
	if n.unknown || n.revision < n.written {
		return
	}
	before := n.sent
	n.sent = nil
	r.releaseUnused(n, before)
}

// setHidden names a CiliumBGPNodeConfig of which nothing can be decoded, "" if there is none.
func (r *routerIDs) setHidden(name string) {
	if r != nil {
		r.hidden = name
	}
}

// choose returns the router ID of a router: that of its override, the one that it has, or a free one.
func (r *routerIDs) choose(n *nodeIDs, h holder, router *instance) (netip.Addr, error) {
	if router.RouterID != (slim.String{}) {
		return r.override(h, router)
	}
	for _, has := range []map[netip.Addr]holder{n.shown, n.planned, n.sent} {
		for _, a := range slices.SortedFunc(maps.Keys(has), netip.Addr.Compare) {
			if by, held := r.addresses.OwnerOf(a); has[a] == h && held && by == h && r.pool.Contains(a) {
				return a, nil
			}
		}
	}
	for _, blind := range append(slices.Sorted(maps.Keys(r.nodes)), r.hidden) {
		if blind != "" && (blind == r.hidden || r.nodes[blind].blind) {
			return netip.Addr{}, &routerIDError{h, fmt.Sprintf("that of CiliumBGPNodeConfig %s cannot be decoded; repair or delete it", blind)}
		}
	}
	return r.allocate(h)
}

func (r *routerIDs) override(h holder, router *instance) (netip.Addr, error) {
	a := router.routerID()
	if !a.Is4() {
		return a, &overrideError{h.node, fmt.Sprintf("router ID %q of instance %s is no IPv4 address", router.RouterID, h.instance)}
	}
	if err := r.addresses.Reserve(a, h); err != nil {
		taken := new(alloc.TakenError[netip.Addr, holder])
		errors.As(err, &taken)
		return a, &overrideError{h.node, fmt.Sprintf("router ID %s of instance %s is that of %s; choose another one", a, h.instance, taken.By)}
	}
	return a, nil
}

// allocate allocates the lowest free router ID that no override wants for another router.
func (r *routerIDs) allocate(h holder) (netip.Addr, error) {
	var skipped []netip.Addr
	defer func() {
		for _, a := range skipped {
			r.addresses.Release(a, h)
		}
	}()
	for {
		a, err := r.pool.AllocateFirst(alloc.IPv4, h)
		if err != nil {
			return a, &routerIDError{h, fmt.Sprintf("all %s of --bgp-router-id-allocation-ip-pool are in use; make it larger", r.pool.Total())}
		}
		if wanted := r.wanted[a]; len(wanted) == 0 || wanted[h] {
			return a, nil
		}
		skipped = append(skipped, a)
	}
}

// routerIDError is a router without a router ID.
type routerIDError struct {
	of      holder
	problem string
}

func (e *routerIDError) Error() string {
	return fmt.Sprintf("no router ID for %s: %s", e.of, e.problem)
}

// undecodedIDs are the addresses in what cannot be decoded of a CiliumBGPNodeConfig. blind says that there may be others.
func (n *nodeConfig) undecodedIDs() (found []netip.Addr, blind bool) {
	if !n.CannotDecode("spec") {
		return nil, false
	}
	for i := range max(1, len(n.Spec.BGPInstances)) {
		router := fmt.Sprintf("spec.bgpInstances[%d]", i)
		if !n.CannotDecode(router + ".routerID") {
			continue
		}
		known := false
		for _, path := range []string{"spec", "spec.bgpInstances", router, router + ".routerID"} {
			if raw := n.RawField(path); raw != nil {
				known = true
				found = append(found, addressesIn(raw)...)
			}
		}
		blind = blind || !known
	}
	return found, blind
}

// addressesIn are the addresses in the texts of a JSON value.
func addressesIn(raw []byte) (found []netip.Addr) {
	for tokens := json.NewDecoder(bytes.NewReader(raw)); ; {
		token, err := tokens.Token()
		if err != nil {
			return found
		}
		if text, ok := token.(string); ok {
			if a, err := netip.ParseAddr(text); err == nil {
				found = append(found, a)
			}
		}
	}
}
