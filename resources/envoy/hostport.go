// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// componentPorts are those of the nodes on which components of the cluster listen: Envoy would share them, and connections be divided.
var componentPorts = map[uint32]string{
	2379: "etcd", 2380: "etcd", 2381: "etcd",
	6443:  "the API server",
	10248: "the kubelet", 10250: "the kubelet", 10255: "the kubelet", 10256: "kube-proxy",
	10257: "the controller manager", 10259: "the scheduler",
	4240: "agents", 4244: "agents", 4250: "agents", 4251: "agents", 9878: "agents", 9879: "agents", 9890: "agents", 9901: "agents", 9962: "agents", 9964: "agents", 9965: "agents",
	9234: "this operator", 9891: "this operator", 9963: "this operator",
}

// componentDatagrams are those of UDP, by which nodes send each other the traffic of pods.
var componentDatagrams = map[uint32]string{8472: "agents", 6081: "agents", 51871: "agents"}

// ComponentAt returns the component of the cluster that listens at a port of the nodes for TCP, "" for none. No Ingress, no Gateway and no Service
// with addresses of nodes gets such a port (ING-25, GW-55, NIPAM-14).
func ComponentAt(port uint32) string { return componentPorts[port] }

// ComponentAtUDP is ComponentAt for UDP.
func ComponentAtUDP(port uint32) string { return componentDatagrams[port] }

// HostPorts are the ports of the nodes at which a CiliumEnvoyConfig has listeners: those with an address, which agents give to no other listener.
type HostPorts []uint32

// hostPortsOf reads them of a spec, as this operator and the original write it.
func hostPortsOf(spec []byte) (ports HostPorts) {
	type address struct {
		SocketAddress struct {
			PortValue uint32 `json:"portValue"`
		} `json:"socketAddress"`
	}
	var has struct {
		Resources []struct {
			Type       string  `json:"@type"`
			Address    address `json:"address"`
			Additional []struct {
				Address address `json:"address"`
			} `json:"additionalAddresses"`
		} `json:"resources"`
	}
	if !bytes.Contains(spec, []byte(`"portValue"`)) {
		return nil
	}
	_ = json.Unmarshal(spec, &has) // what has another form has no ports
	for _, r := range has.Resources {
		if r.Type != listenerType {
			continue
		}
		ports = append(ports, r.Address.SocketAddress.PortValue)
		for _, more := range r.Additional {
			ports = append(ports, more.Address.SocketAddress.PortValue)
		}
	}
	slices.Sort(ports)
	return slices.Clone(slices.Compact(slices.DeleteFunc(ports, func(port uint32) bool { return port == 0 || port > math.MaxUint16 })))
}

const listenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"

var byHostPort = stream.NewIndex("host port", func(o *Object, add func(uint32)) {
	for _, port := range o.Spec.HostPorts {
		add(port)
	}
})

// PortAsker is who wants a port of the nodes.
type PortAsker struct {
	// Namespace is that of the asker, for ListenerAt.
	Namespace string
	// Operators is the namespace of the operator, where no tenant writes.
	Operators string
	// IsMine is whether it has a CiliumEnvoyConfig. Shares and Yields are what the duty has decided about that of another object of the duty which asks for the
	// port, too: both have it, or the other one gives it up.
	IsMine, Shares, Yields func(*Object) bool
}

// HolderOf returns the CiliumEnvoyConfig to which a port of the nodes belongs before an asker that is to have it by what its duty has decided, nil for none. It
// is the one without a controller in the namespace of the operator, such as that of the listener which Ingresses share; or else the one that has the port already, until it
// is gone: as long as it is there, agents listen. So one that yields has it until it has given it up. If the asker has it as well, as an original leaves it, it is the older of
// the two (ING-25, GW-55).
func (a PortAsker) HolderOf(port uint32, in *stream.Store[Object]) *Object {
	var mine, holder, yields *Object
	older := func(o, than *Object) *Object {
		if than == nil || a.compare(o, than) < 0 {
			return o
		}
		return than
	}
	for o := range stream.ByIndex(in, byHostPort, port) {
		switch {
		case a.IsMine(o):
			mine = o
		case a.Shares(o):
		case a.Yields(o):
			yields = older(o, yields)
		default:
			holder = older(o, holder)
		}
	}
	switch {
	case mine != nil && (holder == nil || a.compare(mine, holder) < 0):
		return nil
	case holder == nil:
		return yields
	}
	return holder
}

// ListenerAt returns the CiliumEnvoyConfig of another namespace that listens at a port of the nodes, whatever it is of, nil for none. Of several it is
// the one that HolderOf prefers. isShared is whether it is one before which nothing goes: without a controller, in the namespace of the operator.
func (a PortAsker) ListenerAt(port uint32, in *stream.Store[Object]) (o *Object, isShared bool) {
	isOwn := func(o *Object) bool { return o.Namespace.String() == a.Namespace }
	none := func(*Object) bool { return false }
	a.IsMine, a.Shares, a.Yields = none, isOwn, none
	o = a.HolderOf(port, in)
	return o, o != nil && a.isShared(o)
}

func (a PortAsker) isShared(o *Object) bool {
	return o.Controller.IsZero() && o.Namespace.String() == a.Operators
}

// compare sorts the CiliumEnvoyConfigs that have a port: first those of the operator's namespace without a controller, then the older ones.
func (a PortAsker) compare(o, other *Object) int {
	rank := func(o *Object) int {
		if a.isShared(o) {
			return 0
		}
		return 1
	}
	return cmp.Or(rank(o)-rank(other), cmp.Compare(o.CreationTimestamp, other.CreationTimestamp),
		cmp.Compare(o.Namespace.String(), other.Namespace.String()), cmp.Compare(o.Name, other.Name))
}

// Describe names what a CiliumEnvoyConfig is of, for people.
func (o *Object) Describe() string {
	if owner := o.Controller; owner.Kind() != "" {
		return fmt.Sprintf("%s %s/%s", owner.Kind(), o.Namespace, owner.Name())
	}
	return fmt.Sprintf("CiliumEnvoyConfig %s", o.Key())
}

// HostPortChanges knows which ports of the nodes CiliumEnvoyConfigs have had. It is not safe for concurrent use.
type HostPortChanges map[slim.Key]HostPorts

// Apply records a change, and reports whether ports are others than before.
func (c HostPortChanges) Apply(ch stream.Change[Object]) (changed bool) {
	var has HostPorts
	if ch.Kind == stream.Upsert {
		has = ch.Object.Spec.HostPorts
	}
	was := c[ch.Key]
	if delete(c, ch.Key); len(has) > 0 {
		c[ch.Key] = has
	}
	return !slices.Equal(has, was)
}
