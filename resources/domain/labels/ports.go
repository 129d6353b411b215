// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package labels

import (
	"fmt"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

// NamedPort is a port of a container that has a name.
type NamedPort struct {
	Name     string
	Protocol string
	Port     int32
}

func (p NamedPort) String() string { return fmt.Sprintf("%s.%s.%d", p.Name, p.Protocol, p.Port) }

// sourceGenerated is the source of labels that agents make up.
const sourceGenerated = "gen"

const keyNamedPorts = "io.cilium.k8s.named-ports"

// putNamedPorts adds the labels that tell named ports: in order, as many in a value
// as it may hold, and the rest under keys with a number.
func (s Set) putNamedPorts(ports iter.Seq[NamedPort]) {
	var texts []string
	for p := range ports {
		texts = append(texts, p.String())
	}
	slices.Sort(texts)
	key, value, more := keyNamedPorts, "", 0
	for _, text := range slices.Compact(texts) {
		switch {
		case value == "":
			value = text
		case len(value)+len("_")+len(text) <= validation.LabelValueMaxLength:
			value += "_" + text
		default:
			more++
			key, value = fmt.Sprint(keyNamedPorts, "-", more), text
		}
		s[sourceGenerated+":"+key] = value
	}
}
