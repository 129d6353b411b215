// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package networkpolicy

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// Group is a group of a cloud that a rule refers to, as the JSON of which agents compute its id; or a sign and the id alone, see [Group.IsLarge].
type Group string

// large is the sign. No JSON of a group begins with it.
const large = "#"

// IsLarge reports whether the JSON of the group is not kept, since that of the groups of its policy is together larger than what is. It has an id, and no
// addresses are looked up for it.
func (g Group) IsLarge() bool { return strings.HasPrefix(string(g), large) }

// ID is what a CiliumCIDRGroup with the addresses of the group is found by.
func (g Group) ID() string {
	if id, is := strings.CutPrefix(string(g), large); is {
		return id
	}
	sum := sha256.Sum224([]byte(g))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// groupJSON is a v2.PolicyGroup whose empty fields are left out.
type groupJSON struct {
	AWS *awsJSON `json:"aws,omitempty"`
}

type awsJSON struct {
	Labels              map[string]string `json:"labels,omitempty"`
	SecurityGroupsIDs   []string          `json:"securityGroupsIds,omitempty"`
	SecurityGroupsNames []string          `json:"securityGroupsNames,omitempty"`
	Region              string            `json:"region,omitempty"`
}

func newGroup(g *v2.PolicyGroup) Group {
	var text groupJSON
	if g.AWS != nil {
		own := awsJSON(*g.AWS)
		text.AWS = &own
	}
	raw, _ := json.Marshal(text) // of strings
	return Group(raw)
}

// MaxGroups is the most groups of a policy that are looked up. One more is kept, as the sign that there are more.
const MaxGroups = 256

// maxGroups is the most bytes of the groups of a list of rules, as much as an annotation of a CIDR group has place for.
const maxGroups = 200 << 10

// addGroups adds groups that are not there yet, up to the bounds.
func addGroups(all []Group, more ...Group) []Group {
	size := 0
	for _, g := range all {
		size += len(g)
	}
	for _, g := range more {
		if len(all) > MaxGroups {
			break
		}
		if !slices.Contains(all, g) && !g.IsLarge() && size+len(g) > maxGroups {
			g = Group(large + g.ID())
		}
		if !slices.Contains(all, g) {
			all = append(all, g)
			size += len(g)
		}
	}
	return all
}
