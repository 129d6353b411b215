// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ciliumio

import (
	"encoding/json"
	"math"

	kjson "sigs.k8s.io/json"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// NamedPorts are the ports of an endpoint that have names, in their order, in one
// word that all endpoints of a workload share.
type NamedPorts struct{ slim.NamedPorts }

// PackNamedPorts packs ports.
func PackNamedPorts(ports []v2.NamedPort) NamedPorts {
	if len(ports) == 0 {
		return NamedPorts{}
	}
	all := make([]slim.NamedPort, 0, len(ports))
	for _, p := range ports {
		number := max(math.MinInt32, min(math.MaxInt32, p.Port))
		all = append(all, slim.NamedPort{Name: p.Name, Port: int32(number), Protocol: p.Protocol})
	}
	return NamedPorts{slim.MakeNamedPorts(all...)}
}

// API returns the ports as objects have them, nil if there are none.
func (n NamedPorts) API() (ports []v2.NamedPort) {
	for p := range n.All() {
		ports = append(ports, v2.NamedPort{Name: p.Name, Port: int(p.Port), Protocol: p.Protocol})
	}
	return ports
}

// MarshalJSON implements json.Marshaler.
func (n NamedPorts) MarshalJSON() ([]byte, error) { return json.Marshal(n.API()) }

// UnmarshalJSON implements json.Unmarshaler.
func (n *NamedPorts) UnmarshalJSON(data []byte) error {
	if err := checkSize(data); err != nil {
		return err
	}
	var full []v2.NamedPort
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &full); err != nil {
		return err
	}
	*n = PackNamedPorts(full)
	return nil
}
