// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/blang/semver/v4"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/skep-operator/skep/resources/api"
)

// action is what to do about a definition.
type action string

const (
	update action = "update" // it is older than ours, or nobody knows
	leave  action = "leave"  // it is ours or newer
	wait   action = "wait"   // it is being deleted: create it when it is gone
)

// decision is what to do about a definition, and how it compares with ours.
type decision struct {
	action    action
	installed string // version, as the label says
	result    result // of what is left as it is
}

// decide compares an installed definition with ours.
func decide(installed, ours *apiextensionsv1.CustomResourceDefinition) decision {
	d := decision{action: update, installed: installed.Labels[api.SchemaVersionLabel]}
	if installed.DeletionTimestamp != nil {
		d.action = wait
		return d
	}
	if len(installed.Spec.Versions) == 0 || installed.Spec.Versions[0].Schema == nil {
		return d
	}
	have, err := parseVersion(d.installed)
	if err != nil {
		return d
	}
	want, err := parseVersion(api.SchemaVersion)
	if err != nil || have.LT(want) {
		return d
	}
	d.action, d.result = leave, equal
	switch {
	case have.GT(want):
		d.result = newer
	case !sameSchemas(installed, ours):
		d.result = drifted
	}
	return d
}

// isCurrent reports whether a definition bears our version and is there to stay.
func isCurrent(installed *apiextensionsv1.CustomResourceDefinition) bool {
	return installed.Labels[api.SchemaVersionLabel] == api.SchemaVersion && installed.DeletionTimestamp == nil
}

// parseVersion reads a version as agents do: a leading v, missing parts and
// leading zeros are fine, and a suffix counts only where it says that something
// is not finished.
func parseVersion(text string) (semver.Version, error) {
	v, err := semver.ParseTolerant(text)
	if err != nil {
		return v, fmt.Errorf("schema version %q: %w", text, err)
	}
	if !unfinished(v.Pre) {
		v.Pre = nil
	}
	v.Build = nil
	return v, nil
}

func unfinished(pre []semver.PRVersion) bool {
	for _, p := range pre {
		for _, word := range []string{"rc", "beta", "alpha", "snapshot"} {
			if strings.Contains(p.VersionStr, word) {
				return true
			}
		}
	}
	return false
}

// sameSchemas compares what the API server would keep of ours with what is
// installed.
func sameSchemas(installed, ours *apiextensionsv1.CustomResourceDefinition) bool {
	if len(installed.Spec.Versions) != len(ours.Spec.Versions) {
		return false
	}
	for i := range ours.Spec.Versions {
		if !sameJSON(installed.Spec.Versions[i].Schema, ours.Spec.Versions[i].Schema) {
			return false
		}
	}
	return true
}

func sameJSON(a, b any) bool {
	var values [2]any
	for i, v := range []any{a, b} {
		text, err := json.Marshal(v)
		if err != nil || json.Unmarshal(text, &values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

var errNamesTaken = errors.New("its names are not accepted, another definition has them")

// established reports whether a definition can be used. The error tells why it
// will not be as things stand.
func established(installed *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	serves := false
	for _, c := range installed.Status.Conditions {
		switch {
		case c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse:
			return false, fmt.Errorf("%w (%s): %s", errNamesTaken, c.Reason, c.Message)
		case c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue:
			serves = true
		}
	}
	return serves, nil
}
