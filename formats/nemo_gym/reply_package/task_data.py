"""What a row says beside its prompt. Gym imports this file alone."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class TaskData(BaseModel):
    """One task."""

    model_config = ConfigDict(extra="allow")  # only of what is kept does Gym say that it is not declared

    task_id: str = Field(description="The task's id.", json_schema_extra={"consumed_by": ["verify"]})
    rule: dict[str, Any] = Field(
        description="How a reply is scored: grade.py says what a rule may hold.",
        json_schema_extra={"consumed_by": ["verify"]},
    )
