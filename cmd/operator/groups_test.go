// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/runtime/cell"
)

// groupsFile is a file with the members of the groups of a cloud by the names of the groups, as JSON. It is read at each
// look-up. A group without a list cannot be looked up.
const groupsFile = "SKEP_TEST_GROUPS_FILE"

var groupsCell = cell.Module("groups", "Looks up the groups of a cloud in a file", cell.Provide(func() networkpolicy.ProviderOut {
	return networkpolicy.ProviderOut{Provider: groupsOfFile{}}
}))

// groupsOfFile is a provider whose groups have a label with their name.
type groupsOfFile struct{}

// Name implements networkpolicy.Provider.
func (groupsOfFile) Name() string { return "aws" }

// Addresses implements networkpolicy.Provider.
func (groupsOfFile) Addresses(_ context.Context, raw json.RawMessage) ([]netip.Addr, error) {
	var group v2.AWSGroup
	if err := json.Unmarshal(raw, &group); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(os.Getenv(groupsFile))
	if err != nil {
		return nil, err
	}
	var groups map[string][]netip.Addr
	if err := json.Unmarshal(text, &groups); err != nil {
		return nil, err
	}
	members, known := groups[group.Labels["group"]]
	if known && members == nil {
		return nil, errors.New("the cloud does not answer")
	}
	return members, nil
}

// groups are the members of groups, as the operators of a test find them.
type groups struct {
	t       *testing.T
	path    string
	members map[string][]string
}

func newGroups(t *testing.T) *groups {
	t.Helper()
	g := &groups{t: t, path: filepath.Join(t.TempDir(), "groups"), members: map[string][]string{}}
	t.Setenv(groupsFile, g.path)
	g.write()
	return g
}

// set has a group have these members; without any it cannot be looked up.
func (g *groups) set(group string, members ...string) {
	g.t.Helper()
	g.members[group] = members
	g.write()
}

func (g *groups) write() {
	g.t.Helper()
	text, err := json.Marshal(g.members)
	if err == nil {
		err = os.WriteFile(g.path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(g.path+".new", g.path)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// inGroups is a list of groups of a rule.
func inGroups(names ...string) string {
	text := ""
	for i, name := range names {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(`{"aws":{"labels":{"group":%q}}}`, name)
	}
	return "[" + text + "]"
}
