// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package demo

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// result is what becomes of the objects that the demo loads, as a table.
type result struct {
	title   string
	columns []string
	// read returns the rows, and what is still missing, "" if the result is complete.
	read func(ctx context.Context, client dynamic.Interface) (rows [][]string, missing string, err error)
}

// showResults waits for each result and shows it.
func (d Demo) showResults(ctx context.Context, config *rest.Config, all []result) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	for _, r := range all {
		rows, err := r.await(ctx, client)
		if err != nil {
			return err
		}
		d.say("%s:", r.title)
		table := tabwriter.NewWriter(d.Out, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{r.columns}, rows...) {
			fmt.Fprintln(table, "  "+strings.Join(row, "\t"))
		}
		table.Flush()
	}
	return nil
}

// await returns the rows of a complete result.
func (r result) await(ctx context.Context, client dynamic.Interface) (rows [][]string, err error) {
	missing := ""
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var err error
		rows, missing, err = r.read(ctx, client)
		return missing == "", err
	})
	if err != nil {
		return nil, fmt.Errorf("wait until %s, which lacks %s: %w", r.title, missing, err)
	}
	return rows, nil
}
