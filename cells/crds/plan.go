// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"errors"
	"fmt"
	"strings"

	"github.com/blang/semver/v4"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/api"
)

// action is what to do with a CRD.
type action string

const (
	update action = "update" // it is older than ours, or of unknown version
	leave  action = "leave"  // it is ours or newer
	wait   action = "wait"   // it is being deleted: create it when it is gone
)

// decision is what to do with a CRD, and how it compares with ours.
type decision struct {
	action    action
	installed string // version, from the label
	result    result // if it is kept
}

// decide compares the installed CRD of a kind with ours.
func decide(k api.Kind, installed, ours *unstructured.Unstructured) decision {
	d := decision{action: update, installed: installed.GetLabels()[k.VersionLabel()]}
	if installed.GetDeletionTimestamp() != nil {
		d.action = wait
		return d
	}
	if _, err := parseVersion(d.installed); err != nil && k.IsMulticluster() {
		d.action, d.result = leave, foreign
		return d
	}
	if schemas := schemasOf(installed); len(schemas) == 0 || schemas[0] == nil {
		return d
	}
	have, err := parseVersion(d.installed)
	if err != nil {
		return d
	}
	want, err := parseVersion(k.Version(edition))
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

// isCurrent reports whether the CRD of a kind has our version and is not being deleted.
func isCurrent(k api.Kind, installed *unstructured.Unstructured) bool {
	return installed.GetLabels()[k.VersionLabel()] == k.Version(edition) && installed.GetDeletionTimestamp() == nil
}

// parseVersion parses a version as agents do: a leading v, missing parts and leading zeros are accepted, and a suffix
// counts only if it marks a pre-release.
func parseVersion(text string) (semver.Version, error) {
	v, err := semver.ParseTolerant(text)
	if err != nil {
		return v, fmt.Errorf("schema version %q: %w", text, err)
	}
	if !isPreRelease(v.Pre) {
		v.Pre = nil
	}
	v.Build = nil
	return v, nil
}

func isPreRelease(pre []semver.PRVersion) bool {
	for _, p := range pre {
		for _, word := range []string{"rc", "beta", "alpha", "snapshot"} {
			if strings.Contains(p.VersionStr, word) {
				return true
			}
		}
	}
	return false
}

var errNamesTaken = errors.New("its names are not accepted, another CRD has them")

// established reports whether a CRD with these conditions is established. The error is why it will not be.
func established(conditions []apiextensionsv1.CustomResourceDefinitionCondition) (bool, error) {
	serves := false
	for _, c := range conditions {
		switch {
		case c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse:
			return false, fmt.Errorf("%w (%s): %s", errNamesTaken, c.Reason, c.Message)
		case c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue:
			serves = true
		}
	}
	return serves, nil
}
