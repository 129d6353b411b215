// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// NamedPorts are the container ports of a pod that have names, in their order,
// in one word that all pods of a template share. It decodes spec.containers. Of
// more than some 1,600 ports the first are kept.
type NamedPorts struct{ packed String }

// NamedPort is a container port that has a name.
type NamedPort struct {
	Name     string `json:"name"`
	Port     int32  `json:"containerPort"`
	Protocol string `json:"protocol"`
}

// MakeNamedPorts packs ports.
func MakeNamedPorts(ports ...NamedPort) NamedPorts {
	var b []byte
	for _, p := range ports {
		b = packNamedPort(b, []byte(p.Name), []byte(p.Protocol), p.Port)
	}
	return NamedPorts{MakeString(string(b))}
}

// All yields the ports.
func (n NamedPorts) All() iter.Seq[NamedPort] {
	return func(yield func(NamedPort) bool) {
		for rest := n.packed.String(); rest != ""; {
			var p NamedPort
			var port string
			p.Name, rest = nextPart(rest)
			p.Protocol, rest = nextPart(rest)
			port, rest = nextPart(rest)
			number, _ := strconv.ParseInt(port, 10, 32) // written by packNamedPort
			p.Port = int32(number)
			if !yield(p) {
				return
			}
		}
	}
}

// container is the shape of the field's elements, as JSON has it.
type container struct {
	Ports []NamedPort `json:"ports"`
}

// MarshalJSON implements json.Marshaler: all ports in one container.
func (n NamedPorts) MarshalJSON() ([]byte, error) {
	return json.Marshal([]container{{Ports: slices.Collect(n.All())}})
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *NamedPorts) UnmarshalJSON(data []byte) error {
	var all []container
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	var b []byte
	for _, c := range all {
		for _, p := range c.Ports {
			if p.Name != "" && len(b) < maxNamedPorts {
				b = packNamedPort(b, []byte(p.Name), []byte(p.Protocol), p.Port)
			}
		}
	}
	n.packed = MakeString(string(b))
	return nil
}

// AcceptsField implements FieldDecoder.
func (*NamedPorts) AcceptsField(full reflect.Type) error {
	if full != reflect.TypeFor[[]corev1.Container]() {
		return fmt.Errorf("slim.NamedPorts keeps containers, not %s", full)
	}
	return nil
}

var (
	containerPorts = FieldNumber[corev1.Container]("ports")
	portName       = FieldNumber[corev1.ContainerPort]("name")
	portNumber     = FieldNumber[corev1.ContainerPort]("containerPort")
	portProtocol   = FieldNumber[corev1.ContainerPort]("protocol")
)

// DecodeField implements FieldDecoder.
func (n *NamedPorts) DecodeField(f Field) error {
	packed := f.scratch()
	for container := range f.Values() {
		for rest := container; len(rest) > 0; {
			part, more, err := nextField(rest)
			if err != nil {
				return err
			}
			rest = more
			if part.num != containerPorts {
				continue
			}
			port, err := part.bytes()
			if err == nil && len(packed) < maxNamedPorts {
				packed, err = appendContainerPort(packed, port)
			}
			if err != nil {
				return err
			}
		}
	}
	n.packed = f.internScratch(packed)
	return nil
}

// maxNamedPorts bounds what is kept of a pod, in bytes: some 1,600 ports. They are part of its identity, and of its entry in a slice, and a
// hundred pods with a megabyte of them would need more memory than there is.
const maxNamedPorts = 32 << 10

func appendContainerPort(packed, message []byte) ([]byte, error) {
	var name, protocol []byte
	var port int32
	for rest := message; len(rest) > 0; {
		part, more, err := nextField(rest)
		if err != nil {
			return packed, err
		}
		rest = more
		switch part.num {
		case portName:
			name, err = part.bytes()
		case portProtocol:
			protocol, err = part.bytes()
		case portNumber:
			port = int32(part.varint)
		}
		if err != nil {
			return packed, err
		}
	}
	if len(name) == 0 {
		return packed, nil
	}
	return packNamedPort(packed, name, protocol, port), nil
}

func packNamedPort(b, name, protocol []byte, port int32) []byte {
	var digits [11]byte
	b = appendPart(appendPart(b, name), protocol)
	return appendPart(b, strconv.AppendInt(digits[:0], int64(port), 10))
}
