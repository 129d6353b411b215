// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// codec is how values of one kind are kept: packed, as decoded they need many times the memory.
type codec[T any] struct {
	// pack decodes a value. Nothing of one is used that is invalid somewhere, or that may need more than so many bytes when it is decoded, 0 for any number.
	pack func(cluster string, key slim.Key, value []byte, most int) (packed []byte, err error)
	// unpack is the inverse.
	unpack func(cluster string, key slim.Key, packed string) (*T, error)
}

// budget is how many bytes a value may still need when it is decoded.
type budget struct{ left int }

// newBudget returns a budget of so many bytes, 0 for any number.
func newBudget(most int) *budget {
	if most <= 0 {
		most = math.MaxInt
	}
	return &budget{most}
}

var errTooLarge = errors.New("decoded, it may need more memory than one value can have (GOMEMLIMIT)")

func (b *budget) spend(bytes int) error {
	if b.left -= bytes; b.left < 0 {
		return errTooLarge
	}
	return nil
}

const (
	// entrySize is more than an entry of a map of texts needs, without the texts: a map has up to two slots and a half for each entry, and a text an
	// allocation of its own.
	entrySize = 128
	// portsSize is more than small Ports need.
	portsSize = 512
	// decodedSize is how many bytes one byte of JSON needs at most when it is decoded, into maps and lists of those types that are used here.
	decodedSize = 16
)

// serviceValue is the value of a service's key, as it is decoded: without maps of maps.
type serviceValue struct {
	origin
	Backends  backends  `json:"backends"`
	Hostnames hostnames `json:"hostnames"`
	Frontends frontends `json:"frontends"`
	Shared    bool      `json:"shared"`
	ClusterID uint32    `json:"clusterID"`
}

// backends are IPs, by the ports that they have in common.
type backends struct {
	budget *budget
	of     map[string]int // the index of the ports, by IP
	ports  []Ports
	index  map[string]int // of ports, by their text
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *backends) UnmarshalJSON(text []byte) error {
	if isNull(text) {
		b.of = nil
		return nil
	}
	if b.of == nil {
		b.of, b.index = map[string]int{}, map[string]int{}
	}
	var ports json.RawMessage
	return eachPair(text, func(ip string, d *json.Decoder) error {
		err := decodeAddress(ip, d, &ports)
		if err != nil {
			return err
		}
		i, known := b.index[string(ports)]
		if !known {
			if i, err = b.addPorts(ports); err != nil {
				return err
			}
		}
		b.of[ip] = i
		return b.budget.spend(entrySize + len(ip))
	})
}

// addPorts adds ports that no address has had before.
func (b *backends) addPorts(text []byte) (index int, err error) {
	if err := b.budget.spend(portsSize + decodedSize*len(text)); err != nil {
		return 0, err
	}
	var ports Ports
	if err := json.Unmarshal(text, &ports); err != nil {
		return 0, err
	}
	index = len(b.ports)
	b.ports, b.index[string(text)] = append(b.ports, ports), index
	return index, nil
}

// groups are the backends in the form in which they are kept.
func (b *backends) groups() []packedGroup {
	all := make([]packedGroup, len(b.ports))
	for _, ip := range slices.Sorted(maps.Keys(b.of)) {
		g := &all[b.of[ip]]
		g.Ports, g.IPs = b.ports[b.of[ip]], append(g.IPs, ip)
	}
	return slices.DeleteFunc(all, func(g packedGroup) bool { return len(g.IPs) == 0 })
}

// hostnames are hostnames by IP.
type hostnames struct {
	budget *budget
	of     map[string]string
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *hostnames) UnmarshalJSON(text []byte) error {
	if isNull(text) {
		h.of = nil
		return nil
	}
	if h.of == nil {
		h.of = map[string]string{}
	}
	return eachPair(text, func(ip string, d *json.Decoder) error {
		var name string
		if err := d.Decode(&name); err != nil {
			return err
		}
		h.of[ip] = name
		return h.budget.spend(entrySize + len(ip) + len(name))
	})
}

// frontends are checked, and not kept: nothing reads them.
type frontends struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*frontends) UnmarshalJSON(text []byte) error {
	if isNull(text) {
		return nil
	}
	var ports json.RawMessage
	return eachPair(text, func(ip string, d *json.Decoder) error {
		err := decodeAddress(ip, d, &ports)
		if err != nil || isNull(ports) {
			return err
		}
		return eachPair(ports, func(_ string, d *json.Decoder) error {
			var p Port
			return d.Decode(&p)
		})
	})
}

// decodeAddress checks an address, and decodes what it has.
func decodeAddress(ip string, d *json.Decoder, ports *json.RawMessage) error {
	if _, err := netip.ParseAddr(ip); err != nil {
		return fmt.Errorf("address: %w", err)
	}
	return d.Decode(ports)
}

func isNull(text []byte) bool { return string(text) == "null" }

// eachPair calls f with each key of an object of JSON, and has it decode the value. No map is made.
func eachPair(text []byte, f func(key string, d *json.Decoder) error) error {
	d := json.NewDecoder(bytes.NewReader(text))
	first, err := d.Token()
	if err != nil {
		return err
	}
	if first != json.Delim('{') {
		return fmt.Errorf("%.64q is no object", text)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		if err := f(key.(string), d); err != nil {
			return err
		}
	}
	return nil
}

// packedService is a service in the form in which it is kept. What its key has is left out.
type packedService struct {
	Groups    []packedGroup     `json:"g,omitempty"`
	Hostnames map[string]string `json:"h,omitempty"`
	Shared    bool              `json:"s,omitempty"`
	ClusterID uint32            `json:"i"`
}

// packedGroup are IPs with the same ports.
type packedGroup struct {
	Ports Ports    `json:"p,omitempty"`
	IPs   []string `json:"a"`
}

// serviceCodec is the codec of services.
func serviceCodec(maxID uint32) codec[Service] {
	return codec[Service]{
		pack: func(cluster string, key slim.Key, value []byte, most int) ([]byte, error) {
			return packService(cluster, key, value, maxID, most)
		},
		unpack: unpackService,
	}
}

func packService(cluster string, key slim.Key, value []byte, maxID uint32, most int) ([]byte, error) {
	b := newBudget(most)
	if err := b.spend(len(value)); err != nil {
		return nil, err
	}
	v := serviceValue{Backends: backends{budget: b}, Hostnames: hostnames{budget: b}}
	if err := json.Unmarshal(value, &v); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if err := v.check(cluster, key); err != nil {
		return nil, err
	}
	if v.ClusterID == 0 || v.ClusterID > maxID {
		return nil, fmt.Errorf("its cluster ID %d is not between 1 and %d", v.ClusterID, maxID)
	}
	return json.Marshal(packedService{v.Backends.groups(), v.Hostnames.of, v.Shared, v.ClusterID})
}

func unpackService(cluster string, key slim.Key, packed string) (*Service, error) {
	var p packedService
	if err := json.Unmarshal([]byte(packed), &p); err != nil {
		return nil, err
	}
	n := 0
	for _, g := range p.Groups {
		n += len(g.IPs)
	}
	s := &Service{
		origin: origin{cluster, key.Namespace, key.Name}, Backends: make(map[string]Ports, n), Hostnames: p.Hostnames, Shared: p.Shared, ClusterID: p.ClusterID,
	}
	for _, g := range p.Groups {
		for _, ip := range g.IPs {
			s.Backends[ip] = g.Ports
		}
	}
	return s, nil
}
