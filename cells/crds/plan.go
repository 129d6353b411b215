// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/blang/semver/v4"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/cluster/release"
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
	lost      string // a field that ours lacks, if it is kept for that
}

// decide compares the installed CRD of a kind with ours, which is of an edition.
func decide(k api.Kind, e api.Edition, installed, ours *unstructured.Unstructured) decision {
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
	if d.result = compare(d.installed, k.Version(e)); d.result == equal && !sameSchemas(installed, ours) {
		d.result = drifted
	}
	if d.result == "" && d.installed != "" { // who takes the label off asks for ours
		if d.lost = lostField(installed, ours); d.lost != "" {
			d.result = wider
		}
	}
	if d.result != "" {
		d.action = leave
	}
	return d
}

// compare compares the version of an installed CRD with ours: it is equal, newer, or nothing for one that is to be updated.
func compare(installed, ours string) result {
	have, err := parseVersion(installed)
	want, wantErr := parseVersion(ours)
	switch {
	case err != nil, wantErr != nil, isOfOtherRelease(installed, ours), have.LT(want):
		return ""
	case have.GT(want):
		return newer
	}
	return equal
}

// isOfOtherRelease reports whether a version is ours for another release, of the same schemas or older ones. These differ
// in what they refuse alone, which goes with the release that runs.
func isOfOtherRelease(installed, ours string) bool {
	has, hasRevision := cutRevision(installed)
	want, revision := cutRevision(ours)
	isOurs := slices.ContainsFunc(release.All(), func(r release.Release) bool { return release.SchemaVersion.In(r) == has })
	return isOurs && has != want && hasRevision > 0 && hasRevision <= revision
}

// cutRevision returns the release and the revision of a version of ours, such as 1.33.9 and 1 of 1.33.9-alpha.1; the revision of
// others is 0.
func cutRevision(version string) (release string, revision int) {
	release, text, _ := strings.Cut(version, "-alpha.")
	revision, err := strconv.Atoi(text)
	if err != nil {
		return release, 0
	}
	return release, revision
}

// isCurrent reports whether the CRD of a kind has our version and is not being deleted.
func isCurrent(k api.Kind, e api.Edition, installed *unstructured.Unstructured) bool {
	return installed.GetLabels()[k.VersionLabel()] == k.Version(e) && installed.GetDeletionTimestamp() == nil
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
